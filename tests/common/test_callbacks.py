"""Users' code in a run."""

from __future__ import annotations

import time
import traceback

import pytest

from seed_rl import experiment
from seed_rl.common.callbacks import Callback, Run
from seed_rl.common.remote_callbacks import ADDRESS, RemoteCallbacks, hosted
from seed_rl.common.run_files import checkpoint_list, progress
from seed_rl.common.system.file_lock import LearnerLock
from tests.helpers.vtrace_runs import OFTEN, make_job

pytestmark = pytest.mark.slow


class Recorder(Callback):
    """Remembers everything, and takes its time."""

    def __init__(self):
        self.events, self.reports = [], []

    def on_start(self):
        self.events.append(("start", self.run.options["seed"]))

    def on_report(self, report):
        time.sleep(0.05)
        self.reports.append(report)

    def on_save(self, path):
        self.events.append(("save", path))

    def on_end(self, phase):
        self.events.append(("end", phase))


def test_callbacks_see_the_run_and_their_time_is_a_metric(tmp_path):
    """Guards what callbacks are told, also of a run that is continued, and never called twice."""
    job = make_job(tmp_path, 3_000, learner=OFTEN, num_eval_envs=1)
    recorder = Recorder()
    result = experiment.run(job, callbacks=[recorder])
    assert recorder.events == [("start", 1), ("save", result.checkpoint), ("end", "done")]
    reports = recorder.reports
    assert len(reports) >= 2 and [r.last for r in reports] == [False] * (len(reports) - 1) + [True]
    assert reports[-1].frames == 3_000 and reports[-1].metrics["train/steps"] == 75
    seen = [row for report in reports for row in report.episodes]
    written = {(row.frames, row.env_id, row.episode_return) for row in result.episodes}
    assert {(row.frames, row.env_id, row.episode_return) for row in seen} <= written
    assert {row.evaluation for row in seen} == {True, False}
    trained = [r for report in reports for r in report.returns]
    assert trained == [row.episode_return for row in seen if not row.evaluation]
    # Seconds, not milliseconds.
    assert all(0.05 <= report.metrics["speed/callbacks/Recorder_s"] < 50 for report in reports[1:])
    assert any("charts/evaluation_return" in report.metrics for report in reports)
    again = Recorder()
    experiment.run(make_job(tmp_path, 3_000, num_eval_envs=1), callbacks=[again])
    assert again.events == [("start", 1), ("end", "done")] and not again.reports


class Failing(Recorder):
    """Fails in one of its methods."""

    def __init__(self, event):
        super().__init__()
        setattr(self, event, self._fail)

    def _fail(self, *_):
        raise ZeroDivisionError("my mistake")


@pytest.mark.parametrize("event", ["on_start", "on_report", "on_save", "on_end"])
def test_what_a_callback_raises_ends_the_run_with_a_checkpoint(tmp_path, event):
    """Guards users' own traceback, what was learned until then, and that others may end well."""
    failing, other = Failing(event), Recorder()
    with pytest.raises(ZeroDivisionError, match="my mistake") as caught:
        learner = {**OFTEN, "save_checkpoint_secs": 1.0}
        frames = 10**7 if event != "on_end" else 1_000
        job = make_job(tmp_path, frames, learner=learner)
        experiment.run(job, callbacks=[other, failing])
    assert "in _fail" in "".join(traceback.format_exception(caught.value))
    result = experiment.read_result(tmp_path)
    assert progress.read(tmp_path).phase == "failed" and not result.finished
    if event != "on_start":
        assert int(result.checkpoint.name.rpartition("-")[2]) == result.frames > 0
    assert other.events[-1] == ("end", "done" if event == "on_end" else "failed")
    LearnerLock(tmp_path).release()


class Stopping(Callback):
    """Saves, and stops."""

    def on_report(self, report):
        if report.frames:
            assert self.run.save(self.run.logdir / "mine") is not None
            for _ in range(2):
                self.run.save(self.run.logdir)
            self.run.stop("enough")


def test_callbacks_stop_and_save(tmp_path, caplog):
    caplog.set_level("INFO")
    result = experiment.run(make_job(tmp_path, 10**7, learner=OFTEN), callbacks=[Stopping()])
    assert result.finished and 0 < result.frames < 10**7
    assert len(checkpoint_list.list_checkpoints(tmp_path / "checkpoints")) == 3, "one is pruned"
    assert "Training ends: enough." in caplog.text
    policy = experiment.trained_policy(make_job(tmp_path / "new", 1), tmp_path / "mine")
    assert policy.initial_state() is not None


def test_a_learner_that_starts_again_finds_its_callbacks(tmp_path):
    """Guards several learners, all of which start again when one has crashed."""
    recorder = Recorder()
    with hosted([recorder]) as variables:
        for life in (1, 2):
            remote = RemoteCallbacks(variables[ADDRESS])
            remote.run = Run(tmp_path, {"seed": life}, lambda _: None)
            remote.on_start()
            remote._caller.close()
    assert recorder.events == [("start", 1), ("start", 2)]


def test_other_objects_are_refused(tmp_path):
    with pytest.raises(TypeError, match="objects of subclasses of Callback, not"):
        experiment.run(make_job(tmp_path, 100), callbacks=[print])
    LearnerLock(tmp_path).release()
