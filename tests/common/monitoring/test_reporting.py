"""The learner's use of the server's statistics, and its warnings."""

import itertools
import logging

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.errors import UserError
from seed_rl.common.inference.inference_store import EpisodeStats
from seed_rl.common.monitoring import reporting
from seed_rl.common.run_files import progress
from seed_rl.launch import panel
from tests.helpers.clock import Clock
from tests.helpers.inference_stores import make_store
from tests.helpers.waiting import wait_until


def stats(calls, rows, batches, queue_s, run_s, answered=0, errors=0, last_error=""):
    """As the server gives them: counts and means since its start."""
    return dict(
        calls=calls,
        rows=rows,
        batches=batches,
        mean_batch=rows / max(batches, 1),
        queue_wait_us=1e6 * queue_s / max(calls, 1),
        run_us=1e6 * run_s / max(batches, 1),
        answered=answered,
        errors=errors,
        last_error=last_error,
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


@pytest.fixture
def store():
    return make_store(num_envs=9, queue_capacity=1)


@pytest.fixture
def reporter(tmp_path, store):
    reporter = reporting.Reporter(
        tmp_path,
        store=store,
        num_training_envs=9,
        num_action_repeats=1,
        total_frames=1000,
        start_frames=0,
        log_period_s=1000,
    )
    with reporter.watching(lambda: stats(1, 1, 1, 0, 0)):
        yield reporter
    reporter.close()


def report(reporter, skipped, times=1, last=True):
    for step in range(times):
        loss = np.nan if skipped else 0.0
        metrics = {"skipped_steps": tf.constant(float(skipped)), "loss": loss}
        reporter.step(1, step, metrics, dict, last=last and step == times - 1)


def test_calls_that_all_fail_are_reported(caplog):
    """Guards that the learner says what only the actors' logs said: why nothing trains."""
    now = [0.0]
    failing = reporting.FailingCalls(lambda: now[0])
    for seconds, answered, errors, fails in (
        (1, 0, 0, False),  # No actor yet.
        (10, 0, 8, False),
        (16, 0, 9, True),
        (17, 0, 9, True),  # They pause before they try again.
        (30, 5, 10, False),
        (60, 5, 10, False),  # Silence is another warning.
        (61, 5, 11, True),
        (200, 6, 50_000, False),  # The errors of one actor among others that work.
        (300, 6, 50_001, True),
    ):
        now[0] = float(seconds)
        calls = answered + errors
        failing.update(stats(calls, calls, calls, 0, 0, answered, errors, "no copy"))
        expected = "all calls from actors fail: no copy" if fails else None
        assert failing.warning() == expected, seconds
    assert caplog.messages == 2 * ["All calls from actors fail: no copy"]  # Once a minute.


@pytest.fixture
def impatient(reporter, monkeypatch):
    """The reporter, with errors and a clock that makes the first of them a failure of all calls."""
    monkeypatch.setattr(reporting, "_PERIODS_OF_WAITING", 1)
    failing = reporting.FailingCalls(itertools.count(0.0, 100.0).__next__)
    monkeypatch.setattr(reporter, "_failing", failing)
    monkeypatch.setattr(reporter, "_served", lambda: stats(3, 3, 1, 0, 0, 0, 3, "no copy"))
    return reporter


def test_the_reason_is_shown_before_the_first_training_step(tmp_path, impatient):
    """Guards the reporter that watches while the learner waits, and the size of the last batch."""
    wait_until(lambda: progress.read(tmp_path).warning)
    first = progress.read(tmp_path)
    wait_until(lambda: progress.read(tmp_path).time > first.time)  # No batch has run since.
    for state in (first, progress.read(tmp_path)):
        assert state.warning == "all calls from actors fail: no copy"
        assert (state.phase, state.mean_inference_batch) == ("starting", 3)


def test_training_steps_show_it_too_but_the_end_is_no_failure(tmp_path, impatient):
    """Guards the warning in the reports of training steps, and its absence while a run ends."""
    impatient.phase("saving", 1)
    report(impatient, 0)
    assert progress.read(tmp_path).warning is None
    report(impatient, 0)  # The phase is training again.
    assert progress.read(tmp_path).warning == "all calls from actors fail: no copy"
    assert progress.read(tmp_path).mean_inference_batch == 3  # Though none ran in between.


def test_warnings_reach_the_panel(tmp_path, store, reporter):
    """Guards the warnings about skipped steps and NaN, and that they disappear."""
    report(reporter, 0)
    reporter.phase("saving", 1)  # What comes after another phase is written at once.
    assert progress.read(tmp_path).warning is None
    store.not_finite.note(np.array([7, 3], np.int32))
    report(reporter, 1, 13)
    warning = progress.read(tmp_path).warning
    assert warning.startswith("the last 13 training steps were skipped; NaN, infinity or ")
    assert "environments 3, 7: 2 unrolls" in warning
    rows = panel.describe(panel.Status(progress.read(tmp_path), 1, 1))
    assert ("warning", warning) in rows


def test_only_unusual_pauses_are_warned_of(reporter, monkeypatch, caplog):
    """Guards the log and the panel of runs whose batches take long to gather."""
    reporter.phase("training", 1)
    clock = Clock()
    monkeypatch.setattr(reporting.time, "monotonic", clock)
    for pause_s, warns in ((1, False), (11, True), *[(20, None)] * 9, (25, False), (90, True)):
        caplog.clear()
        clock.sleep(pause_s)
        report(reporter, 0, last=False)
        if warns is not None:
            assert ("passed between training steps" in caplog.text) == warns, pause_s
    clock.sleep(50)
    assert reporter._warning() is None
    clock.sleep(150)
    assert reporter._warning() == "no training step for 200 s"


def test_the_last_report_is_complete(tmp_path, reporter, caplog):
    """Guards the last line of short runs against being that of the first second."""
    with caplog.at_level(logging.INFO):
        report(reporter, 0, 13)
    assert "12 updates" in caplog.text
    reporter._episodes.add(EpisodeStats(*(np.array([x]) for x in (0, 5, 2.0, 2.0, 5, 1.0))))
    reporter.phase("done", 1)  # After episodes that ended with the server.
    last = progress.read(tmp_path)
    assert (last.train_steps, last.episodes, last.episode_return_mean) == (12, 1, 2.0)


def test_no_checkpoint_while_training_stalled(reporter):
    """Guards that the newest checkpoint is one of a training that worked."""
    report(reporter, 0, 5, last=False)
    assert reporter.skipped_in_a_row() == 0
    report(reporter, 1, last=False)
    assert reporter.skipped_in_a_row() == 1
    report(reporter, 0, last=False)
    assert reporter.skipped_in_a_row() == 0
    with pytest.raises(UserError, match="100 training steps in a row.*loss=nan"):
        report(reporter, 1, 100)


def test_silent_environments(caplog):
    """Guards that hanging actors are reported once, those that never called at once, no others."""
    caplog.set_level(logging.WARNING)
    seconds = np.array([0.1, 40, 40, 1, 40, np.nan], np.float32)
    silent = reporting.SilentEnvironments(lambda: seconds.copy())
    never = (5, pytest.approx(0, abs=10))
    # Once is not enough: after a stall of the learner the last have not had their turn.
    assert silent.update() == (never,)
    assert silent.update() == ((1, 40), (2, 40), (4, 40), never)
    assert "environments 1 to 2, 4 for 40 s" in caplog.text
    silent._began -= 100  # Environment 5 is still silent: reported, but not logged again.
    silent.update()
    seconds[4] = 0
    assert silent.update() == ((1, 40), (2, 40), (5, pytest.approx(100, abs=10)))
    assert len(caplog.records) == 1
    seconds[4] = 16
    silent.update()
    assert silent.update()[2] == (4, 16)
    assert "environments 4 for 16 s" in caplog.records[1].getMessage()
