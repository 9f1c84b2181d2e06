"""Helpers for the supervisor's tests: runs of real processes over fake programs."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from seed_rl.common.run_files import checkpoint_list
from seed_rl.launch import run_lock
from tests.helpers import PROGRAMS
from tests.helpers.waiting import PATIENCE_S, wait_until


def _hear_hangups() -> None:
    """Tests under nohup ignore SIGHUP, and so would what they start."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Run:
    """A supervisor process of fake programs."""

    def __init__(self, logdir: pathlib.Path, *arguments: str, **options: Any):
        self.logdir = logdir
        self.output = logdir.parent / f"{logdir.name}.output"
        with open(self.output, "ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(PROGRAMS / "supervise.py"), str(logdir), *arguments],
                preexec_fn=options.pop("preexec_fn", _hear_hangups),
                **{"stdout": output, "stderr": subprocess.STDOUT, **options},
            )

    def text(self) -> str:
        return self.output.read_text()

    def wait(self) -> int:
        return self.process.wait(timeout=PATIENCE_S)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def lives(self, task: int) -> list[int]:
        """Process ids of an actor's starts so far."""
        file = self.logdir / f"lives-{task}"
        return [int(pid) for pid in file.read_text().split()] if file.exists() else []

    def learner(self) -> int:
        return int((self.logdir / "learner.pid").read_text())

    def saved(self) -> int | None:
        """Frames of the newest checkpoint, if any."""
        return checkpoint_list.saved_frames(self.logdir)

    def training(self) -> bool:
        file = self.logdir / "progress.json"
        return file.exists() and '"training"' in file.read_text()


def is_locked(run: Run) -> bool:
    return run_lock.running_pid(run.logdir) is not None


def is_alive(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def going(
    start: Callable[..., Run], actors: int, learner: str = "train", actor: str = "run"
) -> Run:
    """A run whose learner trains and whose actors have all started."""
    run = start(learner, actor, str(actors))
    wait_until(lambda: run.training() and all(run.lives(task) for task in range(actors)))
    return run


def pids(run: Run, actors: int) -> list[int]:
    return [run.learner(), *(run.lives(task)[-1] for task in range(actors))]
