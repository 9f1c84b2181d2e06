"""Football on the real engines; both play the same game. Skipped where an engine is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from absl import logging

from seed_rl.common.acting.batched_env import BatchedEnvironment
from seed_rl.common.errors import UserError
from seed_rl.football import envpool_env, gfootball_env
from seed_rl.football.environment import CHECKPOINTS, FootballConfig, create_environment
from seed_rl.football.observation import pack
from tests.helpers.forks import Forks
from tests.helpers.system_helpers import train_to_end

needs_envpool = pytest.mark.skipif(
    not envpool_env.is_installed(), reason="EnvPool is not installed: pip install envpool"
)
needs_gfootball = pytest.mark.skipif(
    not gfootball_env.is_installed(),
    reason="gfootball is not installed: scripts/build_gfootball.sh",
)
ENGINES = [
    pytest.param("envpool", marks=needs_envpool),
    pytest.param("gfootball", marks=needs_gfootball),
]
CLOSE = "academy_empty_goal_close"
RUN, SHOOT = 5, 12  # To the right; at the goal.


def create(engine: str, game: str = CLOSE, **options: Any) -> Any:
    return create_environment(0, FootballConfig(game=game, engine=engine, **options))


@pytest.mark.parametrize("engine", ENGINES)
def test_running_into_the_empty_goal_scores(engine: str) -> None:
    """The contract: spaces, reward and end, also in the second episode."""
    env = create(engine)
    assert env.observation_space.shape == (72, 96, 1) and env.action_space.n == 19
    for _ in range(2):
        observation, _ = env.reset()
        rewards, done = [], False
        while not done:
            assert env.observation_space.contains(observation)
            observation, reward, done, truncated, info = env.step(RUN)
            rewards.append(reward)
            assert not truncated and info["score_reward"] == reward
        assert rewards[-1] == 1 and not any(rewards[:-1])
    env.close()


@pytest.mark.parametrize("engine", ENGINES)
def test_seeds_make_games_repeatable(engine: str) -> None:
    """Of several episodes; games without a seed differ from each other."""

    def play(seed: int | None) -> list[int]:
        env = create(engine)
        seeds = [env.reset(seed=seed)[1]["engine_seed"], env.reset()[1]["engine_seed"]]
        env.close()
        return seeds

    assert play(7) == play(7)
    assert len({*play(7), *play(8), *play(None), *play(None)}) == 8


@pytest.mark.parametrize("engine", ENGINES)
def test_a_seed_repeats_a_series_of_games(engine: str) -> None:
    """Frame by frame, with the sides taking turns to kick off, however many games were before."""
    env = create(engine, "5_vs_5")

    def play() -> list[np.ndarray]:
        frames = []
        for game in range(3):
            frames.append(env.reset(seed=7 if game == 0 else None)[0])
            frames += [env.step(SHOOT if step == 5 else RUN)[0] for step in range(20)]
        return frames

    np.testing.assert_array_equal(play(), play())
    env.close()


@pytest.mark.parametrize("engine", ENGINES)
def test_the_time_limit_ends_the_game(engine: str) -> None:
    """As a termination: nothing of the game is left to bootstrap from."""
    config = FootballConfig("1_vs_1_easy", engine=engine)  # Of 500 steps; goals do not end it.
    env = BatchedEnvironment(create_environment, 1, 0, config)
    env.reset(seed=0)
    # The engine's clock starts with the second step.
    assert not any(env.step(np.zeros(1, np.int64)).done[0] for _ in range(500))
    last = env.step(np.zeros(1, np.int64))
    assert last.done[0] and not last.abandoned[0] and last.episode_step[0] == 0
    env.close()


@pytest.mark.parametrize("engine", ENGINES)
def test_scenarios_with_a_typo_name_the_nearest(engine: str) -> None:
    """From the engine's own list, before it starts: gfootball would end the process."""
    with pytest.raises(UserError, match=f"no scenario .* Did you mean {CLOSE}"):
        create(engine, "academy_empty_goal_clos")


@needs_envpool
@needs_gfootball
@pytest.mark.parametrize("game", [CLOSE, "academy_3_vs_1_with_keeper", "11_vs_11_easy_stochastic"])
def test_both_engines_play_the_same_game(game: str) -> None:
    """Frame by frame and reward by reward, for equal engine seeds, over several episodes.

    The one that is left in the middle lets the other side kick off the next.
    """
    ours, reference = envpool_env.EnvpoolGame(game), create("gfootball", game).env
    generator = np.random.default_rng(0)
    actual, info = ours.reset(seed=3)
    expected, _ = reference.reset(options={"engine_seed": info["engine_seed"]})
    ended = 0
    for step in range(150):
        np.testing.assert_array_equal(actual, expected)
        action = int(generator.choice([RUN, RUN, SHOOT, generator.integers(19)]))
        actual, reward, done, _, info = ours.step(action)
        expected, expected_reward, expected_done, *_ = reference.step(action)
        assert (reward, done) == (expected_reward, expected_done)
        ended += done
        if done or step == 75:
            actual, info = ours.reset()
            expected, _ = reference.reset(options={"engine_seed": info["engine_seed"]})
    assert ended > 0 or game.startswith("11")
    ours.close()
    reference.close()


@needs_gfootball
def test_checkpoints_reward_the_way_to_the_goal() -> None:
    """Ten of 0.1 and the goal; the score alone is the raw reward."""
    env = BatchedEnvironment(
        create_environment,
        1,
        0,
        FootballConfig("academy_empty_goal", reward_experiment=CHECKPOINTS),
    )
    env.reset(seed=0)
    steps = []
    while not steps or not steps[-1][2]:
        step = env.step(np.array([RUN]))
        steps.append((float(step.reward[0]), float(step.raw_reward[0]), bool(step.done[0])))
    rewards, scores, _ = np.array(steps).T
    assert scores.sum() == scores[-1] == 1
    np.testing.assert_allclose(rewards.sum(), 2, atol=1e-5)
    assert np.count_nonzero(rewards[:-1]) > 1
    env.close()


@needs_gfootball
@pytest.mark.parametrize(("smm_size", "shape"), [("medium", (90, 120)), ("large", (108, 144))])
def test_larger_minimaps(smm_size: str, shape: tuple[int, int]) -> None:
    """The players are where they are on the default one."""
    env = create("gfootball", smm_size=smm_size)
    observation, _ = env.reset(seed=0)
    assert observation.shape == env.observation_space.shape == (*shape, 1)
    small, _ = create("gfootball").reset(seed=0)
    for plane in range(4):
        where = np.argwhere(observation[..., 0] >> plane & 1) / shape
        expected = np.argwhere(small[..., 0] >> plane & 1) / small.shape[:2]
        assert len(where) == len(expected) > 0
        np.testing.assert_allclose(where, expected, atol=0.02)


@needs_gfootball
def test_our_stack_is_the_one_of_gfootball() -> None:
    """Bit by bit, over the start and the end of an episode."""
    from gfootball.env import wrappers

    env = create("gfootball")
    stacked = wrappers.FrameStack(env.env._game, 4)
    observation, info = env.reset(seed=0)
    frames = [observation]
    for _ in range(10):
        frames.append(env.step(RUN)[0])
    env.env.reset(options={"engine_seed": info["engine_seed"]})
    expected = [stacked.reset()]
    for _ in range(10):
        expected.append(stacked.step(RUN)[0])
    np.testing.assert_array_equal(frames, [pack(frame) for frame in expected])


@needs_gfootball
def test_the_ends_of_games_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """gfootball would log several lines per second."""
    env = create("gfootball")
    env.reset(seed=0)
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.INFO)
    try:
        logging.info("others")
        while not env.step(RUN)[2]:
            pass
    finally:
        logging.set_verbosity(verbosity)
    env.close()
    assert caplog.messages == ["others"]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_the_programs_train(engine: str, forks: Forks, tmp_path: Path, socket_address: str) -> None:
    """Learner and actor on the engine; the defaults are the paper's settings."""
    logdir = train_to_end(
        *(forks, tmp_path, socket_address, "seed_rl.football.vtrace_main", 80),
        "--flagfile=seed_rl/football/workstation.flags",
        *(f"--game={CLOSE}", f"--engine={engine}", "--batch_size=2", "--nosave_model"),
        *("--num_envs=2", "--env_batch_size=2"),
    )
    progress = json.loads((logdir / "progress.json").read_text())
    assert progress["frames"] == 80 and progress["train_steps"] >= 1
