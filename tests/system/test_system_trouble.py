"""Whole runs whose processes all get signals, without disk space, or with hanging actors."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import time

import pytest

from seed_rl.common.errors import NotSavedError
from seed_rl.common.run_files import progress as progress_lib
from tests.helpers import full_disk
from tests.helpers.local_runs import frames_saved, nothing_runs, processes_of, start, trains_on
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.slow


def family_of(pid):
    """The process and all its descendants."""
    parents = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.name)] = int(fields[1])
    family = [pid]
    for member in family:
        family += [child for child, parent in parents.items() if parent == member]
    return family


def test_term_to_every_process_saves(place):
    """Guards jobs that a manager ends by signalling all of their processes, more than once, and a
    learner that gets signals as long as it lives.
    """
    run = start(place)
    trains_on(place, run)
    family = family_of(run.pid)
    assert len(family) >= 5  # Supervisor, guardian, learner and two actors.
    groups = {os.getpgid(pid) for pid in family}
    assert len(groups) >= 5
    for _ in range(3):
        for group in groups:
            try:
                os.killpg(group, signal.SIGTERM)
            except ProcessLookupError:
                pass  # An actor that has ended.

    def no_learner_is_left():
        for pid in processes_of(place, "learner").values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        return not processes_of(place, "learner")

    wait_until(no_learner_is_left)
    assert run.wait() == 0, run.text()
    assert nothing_runs(place)
    assert frames_saved(place) == place.progress().frames > 0
    assert place.progress().phase == "stopped"
    assert f"stopped; the same command resumes from {frames_saved(place):,}" in run.text()


def test_a_disk_that_fills_up(place):
    """Guards the messages of a run that cannot write its last checkpoint or anything else."""
    place.logdir.mkdir()
    within = full_disk.command(place.logdir, size="2m", full=False)
    run = start(place, "--save_checkpoint_secs=1000", within=within)
    inside = pathlib.Path(f"/proc/{run.pid}/root{place.logdir}")  # As the run itself sees it.

    def frames():
        progress = progress_lib.read(inside)
        return progress.frames if progress else 0

    wait_until(lambda: frames() > 1000, running=run)
    with open(inside / "filling", "wb", buffering=0) as file, pytest.raises(OSError, match="space"):
        while True:
            file.write(bytes(4096))
    wait_until(lambda: f"warning no space left in {place.logdir}" in run.text(), running=run)
    run.send(signal.SIGINT)
    assert run.wait() == NotSavedError.exit_code, run.text()
    assert (
        "error: the last checkpoint could NOT be saved (newest: none): no space left" in run.text()
    )
    assert "resumes from " not in run.text()
    assert "Traceback" not in run.text()


@pytest.mark.nightly
def test_stopped_actors_are_named(place):
    """Guards against "actors 2/2" alone, and against blaming the learner that waits for them."""
    run = start(place)
    trains_on(place, run)
    actors = wait_until(
        lambda: len(found := processes_of(place, "actor")) == 2 and found, running=run
    )
    os.kill(actors[1], signal.SIGSTOP)
    trains_on(place, run)
    time.sleep(5)
    os.kill(actors[0], signal.SIGSTOP)
    wait_until(lambda: "actor 0 silent" in run.text(), running=run)
    named = re.findall(r"warning actor (\d) silent for (\d+) s", run.text())
    silent_s = {task: int(seconds) for task, seconds in named}  # Of the last line.
    assert silent_s["1"] >= silent_s["0"] + 4, "each has a silence of its own"
    assert "the learner has been silent" not in run.text()
    for pid in actors.values():
        os.kill(pid, signal.SIGCONT)
    trains_on(place, run)
    run.send(signal.SIGINT)
    assert run.wait() == 0, run.text()
