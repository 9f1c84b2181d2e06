"""What the learner makes of the server's statistics."""

import logging

import numpy as np
import pytest

from seed_rl.common import reporting


def stats(calls, rows, batches, queue_s, run_s):
    """As the server gives them: counts and means since its start."""
    return dict(
        calls=calls,
        rows=rows,
        batches=batches,
        mean_batch=rows / max(batches, 1),
        queue_wait_us=1e6 * queue_s / max(calls, 1),
        run_us=1e6 * run_s / max(batches, 1),
    )


def test_figures_are_those_of_the_time_since_the_last():
    """Guards that an hour of quick batches does not hide that they have become slow."""
    served = reporting._Served()
    hour = stats(1_000_000, 8_000_000, 1_000_000, queue_s=100, run_s=3000)
    first = served.update(hour)
    assert first["mean_batch"] == 8 and first["run_us"] == pytest.approx(3000)
    second = served.update(stats(1_000_010, 8_000_040, 1_000_010, queue_s=101, run_s=3002))
    assert second["mean_batch"] == pytest.approx(4)
    assert second["queue_wait_us"] == pytest.approx(1e5)
    assert second["run_us"] == pytest.approx(2e5)
    nothing = served.update(stats(1_000_010, 8_000_040, 1_000_010, queue_s=101, run_s=3002))
    assert set(nothing.values()) == {0}


def test_silent_environments(caplog):
    """Guards that actors which stand still are told of, once, and no others."""
    caplog.set_level(logging.WARNING)
    seconds = np.array([0.1, 40, 40, 1, 40, np.nan], np.float32)
    silent = reporting.SilentEnvironments(lambda: seconds.copy())
    # Once is not enough: after a stall of the learner the last have not had their turn.
    assert silent.update() == ()
    assert silent.update() == ((1, 40), (2, 40), (4, 40))
    assert "environments 1 to 2, 4 for 40 s" in caplog.text
    silent._began -= 100  # Environment 5 has not come for so long: no news, but told.
    silent.update()
    seconds[4] = 0
    assert silent.update() == ((1, 40), (2, 40), (5, pytest.approx(100, abs=10)))
    assert len(caplog.records) == 1
    seconds[4] = 16
    silent.update()
    assert silent.update()[2] == (4, 16)
    assert "environments 4 for 16 s" in caplog.records[1].getMessage()
