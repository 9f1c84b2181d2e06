"""What the adapter relies on. Guards the stand-in from being kinder than the engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

LEVEL = "contributed/dmlab30/rooms_watermaze"
CONFIG = {"width": "96", "height": "72", "episodeLengthSeconds": "1"}
FRAMES = ["RGB_INTERLEAVED"]


def forward(dtype: Any = np.intc) -> np.ndarray:
    return np.array([0, 0, 0, 1, 0, 0, 0], dtype)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((LEVEL, ("RGB_INTERLEAVED",), CONFIG), TypeError),
        ((LEVEL, FRAMES, {"width": 96}), TypeError),
        ((LEVEL, FRAMES, None), TypeError),
        ((LEVEL, FRAMES, CONFIG, None), TypeError),
        ((LEVEL, ["RGB_UNKNOWN"], CONFIG), ValueError),
        (("contributed/dmlab30/rooms_unknown", FRAMES, CONFIG), RuntimeError),
        ((LEVEL, FRAMES, {"unknownSetting": "1"}), RuntimeError),
        ((LEVEL, FRAMES, CONFIG, "crayons"), RuntimeError),
    ],
)
def test_wrong_arguments_are_refused(engine: Any, arguments: Any, error: type) -> None:
    with pytest.raises(error):
        engine.Lab(*arguments)


def test_nothing_is_seen_before_and_after_an_episode(engine: Any) -> None:
    lab = engine.Lab(LEVEL, FRAMES, CONFIG)
    assert not lab.is_running()
    for _ in range(2):
        for call in (lab.observations, lambda: lab.step(forward())):
            with pytest.raises(RuntimeError):
                call()
        assert lab.reset(seed=1) is True
        assert lab.is_running()
        while lab.is_running():
            lab.step(forward(), num_steps=4)
    lab.close()
    assert not lab.is_running()


def test_only_python_integers_are_seeds(engine: Any) -> None:
    lab = engine.Lab(LEVEL, FRAMES, CONFIG)
    with pytest.raises(ValueError):
        lab.reset(seed=np.int64(1))
    lab.close()


@pytest.mark.parametrize(
    ("action", "error"),
    [
        ([0, 0, 0, 1, 0, 0, 0], TypeError),
        (forward(np.float32), ValueError),
        (forward(np.int64), ValueError),
        (forward()[:5], ValueError),
        (forward()[np.newaxis], ValueError),
    ],
)
def test_other_actions_than_arrays_of_the_right_kind_are_refused(
    engine: Any, action: Any, error: type
) -> None:
    lab = engine.Lab(LEVEL, FRAMES, CONFIG)
    lab.reset(seed=1)
    with pytest.raises(error):
        lab.step(action)
    lab.close()


def test_only_the_first_episode_of_a_lab_differs_with_the_same_seed(engine: Any) -> None:
    """The adapter discards that episode if it has been given a seed."""
    lab = engine.Lab(LEVEL, FRAMES, CONFIG)
    frames = []
    for _ in range(3):
        lab.reset(episode=0, seed=5)
        for _ in range(5):
            lab.step(forward(), num_steps=4)
        frames.append(lab.observations()["RGB_INTERLEAVED"])
    np.testing.assert_array_equal(frames[1], frames[2])
    lab.close()


def test_observations_are_copies(engine: Any) -> None:
    lab = engine.Lab(LEVEL, FRAMES, CONFIG)
    lab.reset(seed=1)
    first = lab.observations()["RGB_INTERLEAVED"]
    kept = first.copy()
    for _ in range(5):
        lab.step(forward(), num_steps=4)
        lab.observations()
    np.testing.assert_array_equal(first, kept)
    lab.close()
