"""`--episodic_life`: a lost life ends the learner's episode, and the game continues.

`--fire_reset`: each game and life begins with FIRE.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("ale_py")

import ale_py  # noqa: E402

from seed_rl.atari import environment as env  # noqa: E402
from seed_rl.atari.environment import AtariConfig  # noqa: E402
from seed_rl.common.acting.batched_env import BatchedEnv, BatchedEnvironment  # noqa: E402

NUM_STEPS = 420
FIRE = 1


def make(native: bool, size: int = 2, **options: Any) -> BatchedEnv:
    options = {"game": "Breakout", "max_random_noops": 0, "full_action_space": False, **options}
    config = AtariConfig(episodic_life=True, **options)
    if native:
        return env.create_batch(np.arange(size), config)
    return BatchedEnvironment(env.create_environment, size, 0, config)


def actions(size: int) -> np.ndarray:
    """<int64>[time, size]: serves now and then, so that balls and with them lives are lost."""
    chosen = np.random.default_rng(3).integers(4, size=(NUM_STEPS, size))
    chosen[::10] = FIRE
    return chosen


class Reports(NamedTuple):
    """Of one environment, [time]: results of each action, and what is seen after it."""

    reward: list[float]
    done: list[bool]
    abandoned: list[bool]
    episode_step: list[int]
    observation: list[np.ndarray]


def reference(
    chosen: np.ndarray, max_episode_frames: int, fire_reset: bool = False
) -> tuple[Reports, int]:
    """What ALE itself reports of these actions, and how many games end."""
    import cv2

    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", 1)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(env._rom_path("Breakout"))
    legal = ale.getMinimalActionSet()

    def screen() -> np.ndarray:
        return ale.getScreenGrayscale()

    def small(image: np.ndarray) -> np.ndarray:
        return cv2.resize(image, (84, 84), interpolation=cv2.INTER_AREA)[:, :, np.newaxis]

    reports = Reports([], [], [], [], [])
    games = steps = 0
    cut_off, begins = False, True
    for action in chosen:
        if fire_reset and begins:
            action = FIRE
        reward, done, abandoned = 0.0, False, False
        if cut_off:
            done = abandoned = True
        else:
            lives, frames = ale.lives(), []
            for _ in range(4):
                reward += ale.act(legal[action])
                frames.append(screen())
                if ale.game_over():
                    break
            steps += 1
            image = small(np.maximum(frames[-1], frames[-2]) if len(frames) > 1 else frames[-1])
            done = ale.game_over() or ale.lives() < lives
        begins = done
        cut_off = not abandoned and not ale.game_over() and 4 * steps >= max_episode_frames
        if ale.game_over() or abandoned:
            ale.reset_game()
            games, steps = games + 1, 0
            image = small(screen())
        for column, value in zip(reports, (reward, done, abandoned, steps, image), strict=True):
            column.append(value)
    return reports, games


def play(game: BatchedEnv, chosen: np.ndarray) -> list[Reports]:
    game.reset(seed=1)
    reports = [Reports([], [], [], [], []) for _ in game.env_ids]
    for row in chosen:
        step = game.step(row)
        for i, report in enumerate(reports):
            report.reward.append(float(step.reward[i]))
            report.done.append(bool(step.done[i]))
            report.abandoned.append(bool(step.abandoned[i]))
            report.episode_step.append(int(step.episode_step[i]))
            report.observation.append(step.observation[i].copy())
    return reports


@pytest.mark.parametrize(("max_episode_frames", "fire_reset"), [(108_000, False), (404, True)])
def test_a_lost_life_is_done_and_the_game_continues(
    max_episode_frames: int, fire_reset: bool
) -> None:
    """Guards both environments against a game played with ALE itself, also over a time limit."""
    chosen = actions(2)
    played = []
    for native in (True, False):
        game = make(native, max_episode_frames=max_episode_frames, fire_reset=fire_reset)
        played.append(play(game, chosen))
        game.close()
    references = [reference(row, max_episode_frames, fire_reset) for row in chosen.T]
    for actual, (expected, games) in zip(sum(played, []), 2 * references, strict=True):
        assert actual[:-1] == expected[:-1]
        np.testing.assert_array_equal(actual.observation, expected.observation)
        lost = [t for t, step in enumerate(actual.episode_step) if actual.done[t] and step]
        ended = [t for t, step in enumerate(actual.episode_step) if actual.done[t] and not step]
        assert len(lost) >= 3 and len(ended) == games >= 1


@pytest.mark.parametrize("native", [True, False])
def test_without_the_flag_only_games_end(native: bool) -> None:
    """Guards the default: the learner ignores lost lives."""
    chosen = actions(1)
    config = AtariConfig(game="Breakout", max_random_noops=0, full_action_space=False)
    game: BatchedEnv = BatchedEnvironment(env.create_environment, 1, 0, config)
    if native:
        game = env.create_batch(np.arange(1), config)
    (actual,) = play(game, chosen)
    game.close()
    _, games = reference(chosen[:, 0], 108_000)
    assert sum(actual.done) == games


@pytest.mark.parametrize("native", [True, False])
def test_fire_starts_what_an_agent_would_wait_for(native: bool) -> None:
    """Guards games that whoever never presses FIRE would not end, and games without FIRE."""
    nothing = np.zeros([NUM_STEPS, 1], np.int64)
    for fire_reset in (False, True):
        game = make(native, 1, fire_reset=fire_reset)
        for actual in [*play(game, nothing), *play(game, nothing)]:
            assert (sum(actual.done) > 5) is fire_reset
            assert (0 in actual.episode_step) is fire_reset
        game.close()
    game = make(native, 1, game="Freeway", fire_reset=True)
    assert game.action_space.n == 3
    play(game, nothing[:5])
    game.close()
