"""The adapter of the engine gfootball, against a stand-in with its interface and its rules."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest

from seed_rl.common.acting.batched_env import BatchedEnvironment
from seed_rl.football import gfootball_env
from seed_rl.football.environment import CHECKPOINTS, GFOOTBALL, FootballConfig
from seed_rl.football.environment import create_environment as create
from seed_rl.football.gfootball_env import GfootballGame

LENGTH = 3


class Engine:
    """An old-gym environment as `gfootball.env.create_environment` makes it."""

    def __init__(self, **arguments: Any):
        self.arguments, self.seeds, self.closed = arguments, [], False
        self.action_space = types.SimpleNamespace(n=19)
        self.unwrapped = types.SimpleNamespace(_config={"episode_number": 1})
        self._step = LENGTH

    def reset(self) -> np.ndarray:
        self.unwrapped._config["episode_number"] += 1
        self.seeds.append(dict(self.unwrapped._config))
        self._step = 0
        return self._planes()

    def step(self, action: Any) -> tuple[np.ndarray, np.float32, bool, dict[str, Any]]:
        assert isinstance(action, int) and 0 <= action < 19  # numpy's integers are not enough.
        assert self._step < LENGTH, "Cant call step() once episode finished"
        self._step += 1
        done = self._step == LENGTH
        return self._planes(), np.float32(1.1 if done else 0.1), done, {"score_reward": int(done)}

    def close(self) -> None:
        self.closed = True

    def _planes(self) -> np.ndarray:
        width, height = self.arguments["channel_dimensions"]
        return np.zeros((height, width, 4), np.uint8)


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    """Installs the stand-in; the engines that were created."""
    created: list[Engine] = []

    def create_environment(**arguments: Any) -> Engine:
        created.append(Engine(**arguments))
        return created[-1]

    env = types.ModuleType("gfootball.env")
    env.create_environment = create_environment  # type: ignore[attr-defined]
    env.scenario_builder = types.SimpleNamespace(  # type: ignore[attr-defined]
        all_scenarios=lambda: ["academy_corner", "my_own"]
    )
    logger = types.SimpleNamespace(set_level=lambda level: None, ERROR=40)
    gym = types.ModuleType("gym")
    gym.logger = logger  # type: ignore[attr-defined]
    package = types.ModuleType("gfootball")
    package.env = env  # type: ignore[attr-defined]
    for name, module in {"gym": gym, "gfootball": package, "gfootball.env": env}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(gfootball_env, "is_installed", lambda: True)
    return created


def test_the_engine_gets_the_options(engines: list[Engine]) -> None:
    """Among them a scenario of one's own, and width before height."""
    config = FootballConfig("my_own", smm_size="large", reward_experiment=CHECKPOINTS)
    env = create(0, config)
    assert env.observation_space.shape == (108, 144, 1) and env.action_space.n == 19
    assert engines[0].arguments == {
        "env_name": "my_own",
        "representation": "extracted",
        "rewards": "scoring,checkpoints",
        "channel_dimensions": (144, 108),
    }
    env.close()
    assert engines[0].closed


def test_episodes_follow_the_protocol(engines: list[Engine]) -> None:
    """Shaped rewards train, the score is the raw reward; the end resets and is no truncation."""
    env = BatchedEnvironment(create, 1, 0, FootballConfig("my_own", engine=GFOOTBALL))
    env.reset(seed=1)
    for _ in range(2):
        steps = [env.step(np.array([5])) for _ in range(LENGTH - 1)]
        assert not steps[-1].done[0] and steps[-1].reward[0] == np.float32(0.1)
        assert steps[-1].raw_reward[0] == 0
        last = env.step(np.array([5]))
        assert last.done[0] and not last.abandoned[0]
        assert last.reward[0] == np.float32(1.1) and last.raw_reward[0] == 1


def test_a_seed_makes_a_series_of_episodes(engines: list[Engine]) -> None:
    """Each with its engine seed, and the value that gfootball would keep from the first one."""

    def play(seed: int | None) -> list[dict[str, Any]]:
        game = GfootballGame("my_own", "scoring", (72, 96))
        game.reset(seed=seed)
        for _ in range(7):
            game.reset()
        return engines[-1].seeds

    first = play(3)
    assert first == play(3)
    assert first != play(4) and play(None) != play(None)
    seeds = [episode["game_engine_random_seed"] for episode in first]
    assert len(set(seeds)) == 8 and all(type(s) is int and 0 <= s < 2e9 for s in seeds)
    assert [e["reverse_team_processing"] for e in first] == [s % 2 == 1 for s in seeds]


def test_a_seed_starts_the_count_of_games_again(engines: list[Engine]) -> None:
    """By which the sides take turns to kick off; only a seed does."""
    game = GfootballGame("my_own", "scoring", (72, 96))
    for seed in (5, None, 5, None, None):
        game.reset(seed=seed)
    assert [episode["episode_number"] for episode in engines[0].seeds] == [2, 3, 2, 3, 4]


def test_an_episode_can_be_chosen(engines: list[Engine]) -> None:
    """By the seed that the other engine reports, to compare the two."""
    game = GfootballGame("my_own", "scoring", (72, 96))
    _, info = game.reset(options={"engine_seed": 0})
    assert info["engine_seed"] == engines[0].seeds[0]["game_engine_random_seed"] == 0


def test_an_action_lasts_several_frames(engines: list[Engine]) -> None:
    """Guards --num_action_repeats, by which the learner counts frames; an end comes in between."""
    env = create(0, FootballConfig("my_own", engine=GFOOTBALL, num_action_repeats=2))
    env.reset()
    _, reward, terminated, _, info = env.step(1)
    assert reward == pytest.approx(0.2) and not terminated and info["score_reward"] == 0
    _, reward, terminated, _, info = env.step(1)
    assert reward == pytest.approx(1.1) and terminated and info["score_reward"] == 1
