"""Two learners of one run under ./run_local.sh: they end, resume and crash together."""

from __future__ import annotations

import os
import signal

import pytest

from seed_rl.common.run_files import progress
from tests.helpers.local_runs import frames_saved, nothing_runs, processes_of, start
from tests.helpers.system_helpers import site
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.nightly

FLAGS = ("--learners=2", "--insecure", "--batch_size=8", "--save_checkpoint_secs=2")


@pytest.fixture
def place(tmp_path):
    with site(tmp_path, "") as place:
        yield place


def learner(place, index):
    """Process id of a learner that trains; None before that."""
    known = progress.read(place.logdir / (f"learner-{index}" if index else "."))
    return known.pid if known is not None and known.phase == "training" else None


def trains_on(place, run, before=(None, None)):
    """Waits for new learners, and a checkpoint of theirs; returns their process ids."""
    pids = wait_until(
        lambda: (
            all(now := [learner(place, i) for i in range(2)]) and not {*now} & {*before} and now
        ),
        running=run,
    )
    saved = frames_saved(place) or 0
    wait_until(lambda: (frames_saved(place) or 0) > saved, running=run)
    return pids


def test_two_learners_crash_stop_resume_and_end_together(place):
    run = start(place, *FLAGS)
    pids = trains_on(place, run)

    # kill -9 of each of them in turn: all start again from the checkpoint.
    for index in (1, 0):
        os.kill(pids[index], signal.SIGKILL)
        pids = trains_on(place, run, before=pids)
        assert f"learner {index} was killed by SIGKILL; restarting all learners" in run.text()
    assert "Resuming after" in (place.logdir / "logs" / "learner-1.log").read_text()

    # SIGTERM of one ends all, who save; the supervisor exits with 0.
    os.kill(pids[1], signal.SIGTERM)
    assert run.wait() == 0, run.text()
    assert nothing_runs(place)
    saved = frames_saved(place)
    assert saved == place.progress().frames == progress.read(place.logdir / "learner-1").frames

    # Ctrl-C does as well. One learner's actors are gone: the other waits for them and says so.
    run = start(place, *FLAGS)
    trains_on(place, run)
    actors = processes_of(place, "actor")
    for pid in actors.values():
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: "waiting for the actors of learner" in run.text(), running=run)
    for pid in actors.values():
        os.kill(pid, signal.SIGCONT)
    run.send(signal.SIGINT)
    assert run.wait() == 0, run.text()
    assert nothing_runs(place)
    assert frames_saved(place) > saved

    end = frames_saved(place) + 1600
    run = start(place, *FLAGS, f"--total_environment_frames={end}")
    assert run.wait() == 0, run.text()
    assert "training has ended" in run.text()
    assert end <= frames_saved(place) < end + 8 * 20
    for index, log in enumerate(("learner.log", "learner-1.log")):
        assert "Traceback" not in (place.logdir / "logs" / log).read_text(), index
