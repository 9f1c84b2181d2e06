"""Runs under the supervisor of ./run_local.sh, observed from outside."""

from __future__ import annotations

import pathlib

from seed_rl.common.run_files import checkpoint_list
from tests.helpers.waiting import wait_until


def start(place, *flags, within=()):
    return place.start(
        "seed_rl.launch.local",
        *("gym", "vtrace", "2", "2", "--env_name=CartPole-v1", "--seed=1", "--tensorboard=false"),
        "--reward_scaling=0.05",
        f"--logdir={place.logdir}",
        *flags,
        within=within,
    )


def command_lines(logdir):
    """Arguments, by process id, of all processes that name the directory."""
    found = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            arguments = (entry / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if f"--logdir={logdir}" in arguments:
            found[int(entry.name)] = arguments
    return found


def processes_of(place, run_mode):
    """Process ids by task (-1: the learner) of the run's programs."""
    found = {}
    for pid, arguments in command_lines(place.logdir).items():
        if f"--run_mode={run_mode}" in arguments:
            task = [a.removeprefix("--task=") for a in arguments if a.startswith("--task=")]
            found[int(task[0]) if task else -1] = pid
    return found


def nothing_runs(place):
    return not processes_of(place, "learner") and not processes_of(place, "actor")


def progress_of(place):
    """Progress of the run; None until its present learner reports any."""
    progress = place.progress()
    learner = processes_of(place, "learner").get(-1)
    return progress if progress is not None and progress.pid == learner else None


def trains_on(place, supervisor, frames=1000):
    begin = wait_until(lambda: progress_of(place), running=supervisor).frames
    wait_until(lambda: (p := progress_of(place)) and p.frames >= begin + frames, running=supervisor)


def frames_saved(place):
    return checkpoint_list.saved_frames(place.logdir)
