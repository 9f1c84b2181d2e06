"""The experiment without flags."""

import pytest

from examples import in_one_process

pytestmark = pytest.mark.nightly


def test_trains_and_plays(tmp_path):
    """Guards the example, with processes: their environments come from an importable module."""
    result = in_one_process.train(str(tmp_path), 2_000, actors="processes")
    assert result.finished
    assert result.frames >= 2_000
    assert in_one_process.play(str(tmp_path), seed=1) >= 8  # CartPole cannot fall earlier.
