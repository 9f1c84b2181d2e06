"""Helpers for the system tests: the real programs as processes, and waiting for them."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence

from seed_rl.common.run_files import progress as progress_lib
from tests.helpers import REPOSITORY, errors
from tests.helpers.forks import Forks
from tests.helpers.waiting import PATIENCE_S, wait_until

LIFE_STEP = "--env_name=seed_rl.testing.envs:LifeStep-v0"
FAULTY = "--env_name=seed_rl.testing.envs:Faulty-v0"


class Program:
    """A Python module as a process in a new session; keeps its output.

    Args:
      module: to run with `python -m`, or the path of a file.
      *arguments: of the module.
      within: a command that replaces itself with the command after it (`full_disk.command`).
      environment: variables besides those of this process.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        within: Sequence[str] = (),
        environment: dict[str, str] | None = None,
    ):
        named = [module] if module.endswith(".py") else ["-m", module]
        self._process = subprocess.Popen(
            [*within, sys.executable, *named, *arguments],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # Not a file: some programs are not allowed to write files.
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def text(self) -> str:
        """Its output so far; all of it after exit."""
        if self.code is not None:
            self._reader.join(10)
        return "".join(self._lines)

    def errors(self) -> list[str]:
        """The error lines for the user."""
        return errors(self.text())

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        try:
            return self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"does not end:\n{self.text()}") from None

    def kill(self) -> None:
        """kill -9, including its children."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()

    def resident_bytes(self) -> int:
        pages = pathlib.Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line)


class Site:
    """A run's directory and address, and the programs started there."""

    def __init__(self, folder: pathlib.Path, address: str, *options: str):
        self.logdir = folder / "run"
        self.address = address
        self._options = options
        self._programs: list[Program] = []

    def start(self, module: str, *arguments: str, within: Sequence[str] = ()) -> Program:
        self._programs.append(Program(module, *arguments, within=within))
        return self._programs[-1]

    def learner(self, *arguments: str) -> Program:
        return self._main("learner", f"--logdir={self.logdir}", *arguments)

    def finish_learner(
        self, forks: Forks, *arguments: str, code: int
    ) -> subprocess.CompletedProcess[str]:
        """Runs a learner, in a fork, that ends by itself, with this exit code."""
        command = self._command("learner", f"--logdir={self.logdir}", *arguments)
        return forks.run("-m", *command, cwd=REPOSITORY, code=code)

    def actor(self, task: int, *arguments: str) -> Program:
        return self._main("actor", f"--task={task}", "--reconnect_timeout_s=300", *arguments)

    def progress(self, writer: Program | None = None) -> progress_lib.Progress | None:
        """The latest progress report, or None; with `writer`, only a report of this learner."""
        progress = progress_lib.read(self.logdir)
        if progress is not None and writer is not None and progress.pid != writer.pid:
            return None
        return progress

    def frames(self, learner: Program) -> int:
        """Environment frames that `learner` last reported; 0 before its first report."""
        progress = self.progress(learner)
        return progress.frames if progress else 0

    def trains_on(self, learner: Program, frames: int = 1) -> None:
        """Waits until `learner` has trained on `frames` more than now, or than at its start."""
        # A resumed run starts with frames.
        goal = wait_until(lambda: self.progress(learner), running=learner).frames + frames
        wait_until(lambda: self.frames(learner) >= goal, running=learner)

    def close(self) -> None:
        for program in self._programs:
            program.kill()

    def _main(self, mode: str, *arguments: str) -> Program:
        return self.start(*self._command(mode, *arguments))

    def _command(self, mode: str, *arguments: str) -> list[str]:
        main = ["seed_rl.gym.vtrace_main", f"--run_mode={mode}"]
        return [*main, f"--server_address={self.address}", *self._options, *arguments]


@contextlib.contextmanager
def site(folder: pathlib.Path, address: str, *options: str) -> Iterator[Site]:
    """A `Site` that leaves no process behind."""
    there = Site(folder, address, *options)
    try:
        yield there
    finally:
        there.close()


def train_to_end(
    forks: Forks,
    folder: pathlib.Path,
    address: str,
    module: str,
    frames: int,
    *options: str,
    actors: int = 1,
) -> pathlib.Path:
    """Runs learner and actors of a program to its end; returns the logdir.

    Args:
      forks: run the learner.
      folder: of the logdir.
      address: the learner's.
      module: the program.
      frames: its number of environment frames.
      *options: of both, besides eight environments of one actor and a seed.
      actors: how many.
    """
    shared = (
        f"--server_address={address}",
        "--num_envs=8",
        "--env_batch_size=8",
        "--seed=1",
        *options,
    )
    with site(folder, address) as place:
        programs = [
            place.start(module, "--run_mode=actor", f"--task={task}", *shared)
            for task in range(actors)
        ]
        forks.run(
            *([module] if module.endswith(".py") else ["-m", module]),
            "--run_mode=learner",
            f"--logdir={place.logdir}",
            *shared,
            f"--total_environment_frames={frames}",  # A flag file may have another number.
            cwd=REPOSITORY,
            code=0,
        )
        for actor in programs:
            actor.send(signal.SIGTERM)
            assert actor.wait() == 0, actor.text()
        progress = place.progress()
        assert progress is not None and progress.frames >= frames
        return place.logdir
