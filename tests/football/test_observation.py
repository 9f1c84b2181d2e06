"""Planes as bits: packed by NumPy, stacked, unpacked by TensorFlow, against plain loops."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from seed_rl.football.observation import PackedBitsObservation, pack, picture, unpackbits


def random_planes(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).choice(np.array([0, 255], np.uint8), shape)


def pack_slowly(planes: np.ndarray) -> np.ndarray:
    """Plane p is bit p % 16 of word p // 16."""
    *shape, channels = planes.shape
    words = np.zeros((*shape, -(-channels // 16)), np.uint16)
    for index in np.ndindex(*shape):
        for p in range(channels):
            if planes[(*index, p)]:
                words[(*index, p // 16)] |= np.uint16(1 << p % 16)
    return words


class Pitch(gymnasium.Env[Any, Any]):
    """Shows the given frames, one per step; episodes have `length` steps."""

    def __init__(self, frames: np.ndarray, length: int):
        self.observation_space = spaces.Box(0, 255, frames.shape[1:], np.uint8)
        self.action_space = spaces.Discrete(19)
        self._frames, self._length, self._next = iter(frames), length, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._next = 0
        return next(self._frames), {}

    def step(self, action: int) -> Any:
        self._next += 1
        return next(self._frames), 0.0, self._next == self._length, False, {}


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**31), channels=st.integers(1, 40), height=st.integers(1, 5))
def test_packing_is_that_of_plain_loops(seed: int, channels: int, height: int) -> None:
    planes = random_planes(seed, height, 3, channels)
    packed = pack(planes)
    assert packed.dtype == np.uint16
    np.testing.assert_array_equal(packed, pack_slowly(planes))


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**31), channels=st.integers(1, 40), wide=st.booleans())
def test_unpacking_gives_back_every_plane(seed: int, channels: int, wide: bool) -> None:
    """Also of int32 words, as which observations reach a TPU; planes beyond the last are zero."""
    planes = random_planes(seed, 2, 3, 4, channels)
    words = pack(planes).astype(np.int32 if wide else np.uint16)
    unpacked = unpackbits(words).numpy()
    assert unpacked.dtype == np.uint8 and unpacked.shape[-1] % 16 == 0
    np.testing.assert_array_equal(unpacked[..., :channels], planes)
    assert not unpacked[..., channels:].any()


def test_packing_takes_frames_that_are_not_contiguous() -> None:
    """Guards the shortcut for four planes, which reads them as one integer."""
    planes = random_planes(0, 4, 6, 9)[::2, :, 2:6]
    np.testing.assert_array_equal(pack(planes), pack_slowly(planes))


def test_stacked_frames_are_those_of_the_episode() -> None:
    """The newest last; the first frame of an episode fills its stack, as gfootball does."""
    frames = random_planes(1, 14, 3, 5, 4)
    env = PackedBitsObservation(Pitch(frames, length=6), stack_size=4)
    assert env.observation_space == spaces.Box(0, 65535, (3, 5, 1), np.uint16)
    shown = 0
    for _ in range(2):
        first = shown
        observation, _ = env.reset()
        done = False
        while True:
            episode = [frames[max(first, i)] for i in range(shown - 3, shown + 1)]
            expected = np.concatenate(episode, axis=-1)
            assert observation.dtype == np.uint16
            np.testing.assert_array_equal(observation, pack_slowly(expected))
            shown += 1
            if done:
                break
            observation, _, done, *_ = env.step(0)
    assert shown == 14


def test_existing_programs_pack_frames_that_the_engine_stacked() -> None:
    """Old gym environments with 16 planes, and other numbers of them."""
    frames = random_planes(2, 2, 72, 96, 16)
    env = PackedBitsObservation(Pitch(frames, length=1))
    observation, _ = env.reset()
    assert env.observation_space.shape == (72, 96, 1)
    np.testing.assert_array_equal(unpackbits(observation).numpy(), frames[0])
    wide = PackedBitsObservation(Pitch(random_planes(3, 1, 2, 2, 20), length=1))
    assert wide.observation_space.shape == (2, 2, 2)


def test_a_stack_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="5 x 4 planes do not fit 16 bits"):
        PackedBitsObservation(Pitch(random_planes(5, 1, 2, 2, 4), 1), stack_size=5)


def test_the_picture_shows_the_newest_frame() -> None:
    """White where the ball is, yellow for the controlled player, grass elsewhere."""
    frames = np.zeros((2, 3, 4, 4), np.uint8)
    frames[0, 0, 0, 2] = frames[1, 1, 2, 2] = 255  # The ball moves,
    frames[1, 2, 3, [0, 3]] = 255  # a controlled player of the left team appears.
    env = PackedBitsObservation(Pitch(frames, 9), stack_size=4, render_mode="rgb_array")
    env.reset()
    env.step(0)
    drawn = env.render()
    assert drawn.shape == (18, 24, 3) and drawn.dtype == np.uint8
    grass = drawn[0, 0].tolist()
    assert drawn[6:12, 12:18].min() == 255
    assert drawn[12, 18].tolist() not in (grass, [255] * 3)
    assert len({tuple(pixel) for pixel in drawn.reshape(-1, 3).tolist()}) == 3
    np.testing.assert_array_equal(drawn, picture(pack(frames[1])))
