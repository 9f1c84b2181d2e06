"""Runs a study on this machine, some runs at a time.

Each run is a process of `seed_rl.launch.local` with its own logdir, so it is supervised, saved and
resumed like any other run. A study that ends, however it ends, ends its runs: on Ctrl-C it asks
them to save and waits; when it is killed, the kernel sends their supervisors SIGTERM, and they
save by themselves. The next study in the directory waits for those.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import types
from collections import deque
from collections.abc import Callable, Sequence

from seed_rl.common.errors import UserError
from seed_rl.common.system.stop_signal import Requests
from seed_rl.launch import local, options, run_lock, stop
from seed_rl.launch.log_text import tail
from seed_rl.launch.panel import Panel
from seed_rl.launch.process import Process, describe_exit
from seed_rl.launch.run_lock import RunLock
from seed_rl.study import display, sampling
from seed_rl.study.directory import Run, Study
from seed_rl.study.display import StudyStatus

LAUNCHER = (sys.executable, "-m", "seed_rl.launch.local")
_IMPATIENT_S = 10.0  # How long a run may take to exit without saving.
_INSIST_PERIOD_S = 0.5
_STOPPED = (0, 130, -signal.SIGINT)  # Saved, not saved on request, nothing had started.
_QUIET = {"PYTHONUNBUFFERED": "1"}


def command(study: Study, run: Run) -> list[str]:
    """The arguments of `seed_rl.launch.local` for a run."""
    spec = study.spec
    return [
        *(spec.game, spec.agent, str(spec.actors), str(spec.envs_per_actor)),
        *(f"--logdir={run.logdir}", "--tensorboard=false"),
        *sampling.flags(spec, run.configuration, run.seed),
    ]


def check(study: Study) -> None:
    """Has the main program check the flags of as many configurations as show each value.

    Raises:
      UserError: one has a wrong flag; names the configuration.
    """
    chosen = {c.number for c in sampling.covering(study.spec, study.configurations)}
    for run in study.runs():
        wanted = run.seed == 1 and run.configuration.number in chosen
        if wanted and not run.done(study.spec.frames):
            try:
                local.ask_program(options.parse(command(study, run)))
            except UserError as error:
                raise UserError(f"configuration {run.configuration.number}: {error}") from error


def lock(study: Study) -> RunLock:
    """Ensures that one study runs in the directory.

    Raises:
      UserError: one is running there already, or the directory is not writable.
    """
    try:
        return RunLock(study.path)
    except UserError as error:
        message = str(error).replace("A run is active", "A study is running")
        raise UserError(message.replace("--logdir=", "--directory=")) from error


def take_over(study: Study, say: Callable[[str], None]) -> None:
    """Stops the runs that a killed study has left, and waits until they are saved.

    Raises:
      UserError: a run does not stop.
    """
    for run in study.runs():
        if run_lock.running_pid(run.logdir) is not None:
            say(f"waiting for run {run.name} of an earlier study to save and stop")
            stop.stop(run.logdir)


class Runner:
    """Runs what is left of a study.

    Args:
      study: written to its directory.
      parallel: number of runs at a time.
      retry_failed: whether to resume failed runs.
      panel: shows progress and messages.
      launcher: the program that trains; tests replace it.
      poll_s: polling interval.
    """

    def __init__(
        self,
        study: Study,
        parallel: int,
        retry_failed: bool,
        panel: Panel[StudyStatus],
        launcher: Sequence[str] = LAUNCHER,
        poll_s: float = 0.1,
    ):
        self._study = study
        self._parallel = parallel
        self._panel = panel
        self._launcher = launcher
        self._poll_s = poll_s
        self._runs = study.runs()
        self._waiting: deque[Run] = deque()
        self._done = self._failed = 0
        for run in self._runs:
            if run.done(study.spec.frames):
                self._done += 1
            elif run.failure is not None and not retry_failed:
                self._failed += 1
            else:
                self._waiting.append(run)
        self._running: dict[Run, tuple[Process, float]] = {}
        self._seconds: list[float] = []  # How long runs took that ended here.
        self._requests = Requests()
        self._stop_requested = False
        self._impatient = False

    @property
    def stopped(self) -> bool:
        """Whether it was stopped before all runs had ended."""
        return self._stop_requested

    def run(self) -> None:
        """Runs until all runs have ended, or until SIGINT, SIGTERM or SIGHUP."""
        with contextlib.ExitStack() as stack:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                stack.callback(signal.signal, number, signal.signal(number, self._on_signal))
            stack.callback(self._terminate)
            with self._panel:
                while not self._stop_requested and (self._waiting or self._running):
                    while self._waiting and len(self._running) < self._parallel:
                        self._start(self._waiting.popleft())
                    self._poll()
                    time.sleep(self._poll_s)
                if self._running:
                    self._stop()

    def _start(self, run: Run) -> None:
        run.set_failure(None)
        process = Process(
            f"run {run.name}",
            [*self._launcher, *command(self._study, run)],
            run.log,
            _QUIET,
            death_signal=signal.SIGTERM,  # Its supervisor saves, even if we are killed.
        )
        try:
            process.start()
        except OSError as error:
            self._fail(run, f"cannot be started: {error}")
            return
        self._running[run] = process, time.time()
        values = ", ".join(f"{name}={value}" for name, value in run.configuration.values.items())
        self._panel.say(f"{run.name} starts: {values}")

    def _poll(self) -> None:
        """Shows the state, and settles the runs that have ended."""
        for run, (process, started) in list(self._running.items()):
            if (code := process.poll()) is not None:
                del self._running[run]
                self._settle(run, process, code, time.time() - started)
        self._panel.show(self._status())

    def _settle(self, run: Run, process: Process, code: int, seconds: float) -> None:
        if run.done(self._study.spec.frames):
            self._done += 1
            self._seconds.append(seconds)
            self._panel.say(f"{run.name} is done")
        elif self._stop_requested:
            if code not in _STOPPED:
                self._panel.say(f"error: {run.name}: {_reason(process, code)}")
        elif code == 0:
            self._panel.say(f"{run.name} was stopped by someone else; it will resume next time")
        else:
            self._fail(run, _reason(process, code))

    def _fail(self, run: Run, reason: str) -> None:
        self._failed += 1
        self._panel.say(f"error: {run.name} failed: {reason}")
        try:
            run.set_failure(reason)
        except OSError as error:
            self._panel.say(f"error: cannot mark {run.name} as failed: {error.strerror}")

    def _status(self) -> StudyStatus:
        running = [display.running(run, started) for run, (_, started) in self._running.items()]
        frames = self._study.spec.frames
        eta_s = None
        if self._seconds:
            shares = sum(one.progress.frames / frames for one in running if one.progress)
            left = max(0.0, len(self._waiting) + len(running) - shares)
            eta_s = left * sum(self._seconds) / len(self._seconds) / self._parallel
        return StudyStatus(
            running, self._done, self._failed, len(self._runs), frames, self._stop_requested, eta_s
        )

    # Ending.

    def _on_signal(self, number: int, frame: types.FrameType | None) -> None:
        del frame
        self._stop_requested = True
        self._impatient |= self._requests.insists(number)

    def _stop(self) -> None:
        """Has all runs save and exit; if the user insists, exit without saving."""
        self._panel.say("stopping: runs save checkpoints (Ctrl-C again to exit immediately)")
        self._interrupt()
        insisted = 0.0
        deadline = float("inf")
        while self._running:
            if self._impatient and time.monotonic() - insisted >= _INSIST_PERIOD_S:
                if not insisted:
                    deadline = time.monotonic() + _IMPATIENT_S
                    self._panel.say("exiting without saving")
                insisted = time.monotonic()
                self._interrupt()
            if time.monotonic() > deadline:
                for process, _ in self._running.values():
                    process.kill()
            self._poll()
            time.sleep(self._poll_s)

    def _interrupt(self) -> None:
        """Presses Ctrl-C for all runs."""
        for process, _ in self._running.values():
            if process.running:
                os.kill(process.pid, signal.SIGINT)

    def _terminate(self) -> None:
        """Asks what still runs to save; only after an error of ours does anything."""
        for process, _ in self._running.values():
            process.terminate()


def _reason(process: Process, code: int) -> str:
    """Why a run failed, in one line."""
    for line in reversed(tail(process, 60)):
        _, found, message = line.partition("error: ")
        if found:
            return message
    return f"{describe_exit(code)} ({process.log})"
