"""Atari preprocessing against a game whose frames are known."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("cv2")

from seed_rl.atari.atari_preprocessing import AtariPreprocessing  # noqa: E402
from seed_rl.common.errors import UserError  # noqa: E402


class Game:
    """Frame n shows n everywhere (twice n in odd frames); lives and length are given."""

    def __init__(self, length: int = 1000, lives_lost_at: int = 10**9):
        self.action_space = spaces.Discrete(4)
        self.metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}
        self.ale = self
        self.unwrapped = self
        self.actions: list[int] = []
        self.resets = 0
        self._length = length
        self._lives_lost_at = lives_lost_at

    def getScreenDims(self) -> tuple[int, int]:  # noqa: N802 - ALE's name.
        return 210, 160

    def getScreenGrayscale(self, screen: np.ndarray) -> None:  # noqa: N802
        screen.fill(self.frame * (1 + self.frame % 2))

    def lives(self) -> int:
        return 3 if self.frame < self._lives_lost_at else 2

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.frame = 0
        self.resets += 1
        return None, {}

    def step(self, action: int) -> Any:
        self.frame += 1
        self.actions.append(action)
        return None, 1.0, self.frame >= self._length, False, {"frame": self.frame}


def test_action_is_repeated_and_the_last_two_frames_are_joined() -> None:
    game = Game()
    env = AtariPreprocessing(game, frame_skip=4, screen_size=84)
    first, _ = env.reset()
    assert first.shape == (84, 84, 1) and first.dtype == np.uint8 and (first == 0).all()
    observation, reward, terminated, truncated, info = env.step(3)
    assert game.actions == [3] * 4 and reward == 4.0
    assert (observation == 6).all()  # Frame 3 shows 6, frame 4 shows 4.
    assert not terminated and not truncated and info == {"frame": 4}
    assert env.observation_space.contains(observation)
    assert (env.reset()[0] == 0).all(), "nothing of the episode before"


def test_frame_skip_of_one_shows_the_frame_itself() -> None:
    env = AtariPreprocessing(Game(), frame_skip=1)
    env.reset()
    assert [int(env.step(0)[0].max()) for _ in range(4)] == [2, 2, 6, 4]


def test_game_over_ends_the_action() -> None:
    game = Game(length=6)
    env = AtariPreprocessing(game, frame_skip=4)
    env.reset()
    env.step(0)
    _, reward, terminated, truncated, _ = env.step(0)
    assert terminated and not truncated and reward == 2.0 and game.frame == 6
    assert env.game_over


def test_life_loss_ends_the_episode_only_if_asked() -> None:
    for ends in (False, True):
        env = AtariPreprocessing(Game(lives_lost_at=6), terminal_on_life_loss=ends)
        env.reset()
        assert not env.step(0)[2]
        assert env.step(0)[2] == ends


def test_time_limit_counts_frames_of_actions_only() -> None:
    env = AtariPreprocessing(Game(), frame_skip=4, max_random_noops=5, max_episode_frames=9)
    env.reset(seed=1)
    assert [env.step(0)[3] for _ in range(3)] == [False, False, True]
    env.reset()
    assert not env.step(0)[3]


def test_random_noops() -> None:
    """From none to the maximum, all equally likely, and repeatable."""
    game = Game()
    env = AtariPreprocessing(game, max_random_noops=3)
    counts = set()
    env.reset(seed=5)
    for _ in range(50):
        game.actions.clear()
        env.reset()
        counts.add(len(game.actions))
        assert set(game.actions) <= {0}
    assert counts == {0, 1, 2, 3}


def test_noops_that_end_the_game_begin_it_again() -> None:
    game = Game(length=1)
    env = AtariPreprocessing(game, max_random_noops=3)
    env.reset(seed=0)
    while not game.actions:
        env.reset()
    assert game.frame == 0 and game.resets > 1


@pytest.mark.parametrize("options", [{"frame_skip": 0}, {"screen_size": 0}])
def test_impossible_options(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        AtariPreprocessing(Game(), **options)


def test_missing_opencv_names_the_command(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    env = AtariPreprocessing(Game())
    with pytest.raises(UserError, match="-m pip install ale-py opencv-python-headless"):
        env.reset()


def test_no_lives_left_is_not_a_new_life():
    """Some games show zero lives for some frames before they are over."""

    class Lingering(Game):
        def lives(self) -> int:
            return 1 if self.frame < 4 else 0

    env = AtariPreprocessing(Lingering(length=8), frame_skip=4, episodic_life=True)
    env.reset()
    assert env.step(0)[4]["learning_episode_over"] is False
    assert env.step(0)[2]


def test_a_game_that_ends_at_the_limit_is_not_truncated():
    env = AtariPreprocessing(Game(length=8), frame_skip=4, max_episode_frames=8)
    env.reset()
    assert env.step(0)[2:4] == (False, False)
    assert env.step(0)[2:4] == (True, False)
