"""Runs a study on this machine, several runs at a time.

Each run is a process of `seed_rl.launch.local` with its own logdir, so it is supervised, saved and
resumed like any other run. However a study ends, its runs end: on Ctrl-C it asks them to save and
waits; when it is killed, the kernel sends their supervisors SIGTERM, and they save by themselves.
The next study in the directory waits for them.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import time
import types
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from seed_rl.common.errors import INTERRUPTED, UserError
from seed_rl.common.run_files import progress
from seed_rl.common.system import nvidia, terminal
from seed_rl.common.system.stop_signal import Requests
from seed_rl.launch import arguments, local, run_lock, stop
from seed_rl.launch.panel import Panel
from seed_rl.launch.process import Process, describe_exit
from seed_rl.study import directory, display, performance, results, sampling, trials
from seed_rl.study.directory import Study, StudyRun
from seed_rl.study.display import StudyStatus
from seed_rl.study.sampling import Configuration
from seed_rl.study.spec import Spec

LAUNCHER = (sys.executable, "-m", "seed_rl.launch.local")
_DEVICES = ("training_devices", "inference_devices")
_EVALUATION_ENVS = 20  # At once.
_IMPATIENT_S = 10.0  # How long a run may take to exit without saving.
_INSIST_PERIOD_S = 0.5
_POLL_S = 0.1
_REPORT_PERIOD_S = 2.0
_STOPPED = (0, INTERRUPTED, -signal.SIGINT)  # Saved; not saved, by the user; not started.
_QUIET = {"PYTHONUNBUFFERED": "1"}


def training(spec: Spec, configuration: Configuration, seed: int = 1) -> list[str]:
    """The arguments of `seed_rl.launch.local` for a configuration, except the logdir."""
    places = (spec.game, spec.agent, str(spec.actors), str(spec.envs_per_actor))
    return [*filter(None, places), *sampling.flags(spec, configuration, seed)]


def command(study: Study, run: StudyRun) -> list[str]:
    """The arguments of `seed_rl.launch.local` for a run."""
    own = [f"--logdir={run.logdir}", "--tensorboard=false"]
    return [*training(study.spec, run.configuration, run.seed), *own]


def evaluation(study: Study, run: StudyRun) -> list[str]:
    """The command that evaluates a finished run."""
    episodes = study.spec.evaluation_episodes
    options = [f"--episodes={episodes}", f"--envs={min(episodes, _EVALUATION_ENVS)}"]
    options += [f"--{study.spec.evaluation_actions}"]
    options += [f"--seed={run.seed}", f"--json={run.logdir / directory.EVALUATION}", "--trust"]
    return [sys.executable, "-m", "seed_rl.evaluate", str(run.logdir), *options]


def check(study: Study, say: Callable[[str], None]) -> None:
    """Has the main program check the flags of as many configurations as show each value.

    Raises:
      UserError: one has a wrong flag; names the configuration's values.
    """
    spec = study.spec
    configurations = list(sampling.covering(spec, trials.preview(spec)))
    say(f"checking the flags of {len(configurations)} configurations")
    for configuration in configurations:
        run = study.runs_of(configuration)[0]
        try:
            local.ask_program(arguments.parse(command(study, run)), quiet=True)
        except UserError as error:
            raise UserError(f"With {configuration}: {error}") from error


def take_over(study: Study, say: Callable[[str], None]) -> None:
    """Stops the runs that a killed study left behind, and waits until they are saved.

    Raises:
      UserError: a run does not stop.
    """
    for run in study.runs():
        if run_lock.running_pid(run.logdir) is not None:
            say(f"waiting for run {run.name} of an earlier study to save and stop")
            # One that has been asked to stop would exit without saving if it were asked again.
            while _saves(run.logdir):
                time.sleep(_POLL_S)
            if run_lock.running_pid(run.logdir) is not None:
                stop.stop(run.logdir)


def _saves(logdir: Path) -> bool:
    report = progress.read(logdir)
    saving = report is not None and report.phase == "saving"
    return saving and run_lock.running_pid(logdir) is not None


class Running(NamedTuple):
    """A run in progress.

    Attributes:
      process: trains or evaluates.
      started: Unix time.
      gpu: the only GPU that it sees; None: it sees all of them.
    """

    process: Process
    started: float
    gpu: str | None


class Runner:
    """Runs the remaining runs of a study.

    Concurrent runs divide the GPUs: each sees only one, that on which the fewest others train. If
    the study names devices, each sees all.

    Args:
      study: written to its directory.
      parallel: number of runs at a time.
      retry_failed: whether to resume failed runs.
      panel: shows progress and messages.
      launcher: the program that trains; tests replace it.
    """

    def __init__(
        self,
        study: Study,
        parallel: int,
        retry_failed: bool,
        panel: Panel[StudyStatus],
        launcher: Sequence[str] = LAUNCHER,
    ):
        self._study = study
        self._parallel = parallel
        self._panel = panel
        self._launcher = launcher
        self._waiting: deque[StudyRun] = deque()
        self._ended: Counter[str] = Counter()  # Of "done", "failed" and "pruned".
        configurations = study.trials.configurations()
        self._not_drawn = max(0, study.spec.configurations - len(configurations))
        is_grid = study.spec.sampler.name == "grid"
        if is_grid:
            configurations += [study.trials.ask() for _ in range(self._not_drawn)]
            self._not_drawn = 0
        for configuration in configurations:
            self._tell(configuration)
            for run in study.runs_of(configuration):
                if run.done(study.spec):
                    self._ended["done"] += 1
                elif configuration.pruned:
                    self._ended["pruned"] += 1
                elif run.failure is not None and not retry_failed:
                    self._ended["failed"] += 1
                else:
                    self._waiting.append(run)
        if is_grid:  # One seed of each configuration tells more than all seeds of one.
            self._waiting = deque(sorted(self._waiting, key=lambda run: run.seed))
        self._running: dict[StudyRun, Running] = {}
        self._gpus = _gpus_to_share(study.spec, parallel)
        self._stopping: set[StudyRun] = set()  # Pruned, and saving.
        self._starts: dict[StudyRun, float] = {}
        self._evaluated: set[StudyRun] = set()  # Or being evaluated.
        self._next_report = 0.0
        self._seconds: list[float] = []  # How long the runs took that have ended here.
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
            for number in terminal.stop_signals():
                stack.callback(signal.signal, number, signal.signal(number, self._on_signal))
            stack.callback(self._terminate)
            with self._panel:
                while not self._stop_requested and (self._left or self._running):
                    while self._left and len(self._running) < self._parallel:
                        self._start(self._next())
                    self._poll()
                    self._prune()
                    time.sleep(_POLL_S)
                if self._running:
                    self._stop()

    @property
    def _left(self) -> int:
        """How many runs have not started."""
        return len(self._waiting) + self._not_drawn * self._study.spec.seeds

    def _next(self) -> StudyRun:
        if not self._waiting:
            self._not_drawn -= 1
            self._waiting.extend(self._study.runs_of(self._study.trials.ask()))
        return self._waiting.popleft()

    def _start(self, run: StudyRun) -> None:
        run.set_failure(None)
        trains = not run.trained
        if not trains:
            self._evaluated.add(run)
        arguments = [*self._launcher, *command(self._study, run)]
        gpu = self._freest_gpu() if trains else None  # Evaluation computes on the CPU.
        process = Process(
            f"run {run.name}",
            arguments if trains else evaluation(self._study, run),
            run.log,
            _QUIET if gpu is None else {**_QUIET, nvidia.VISIBLE: gpu},
            death_signal=signal.SIGTERM,  # Its supervisor saves, even if we are killed.
        )
        try:
            process.start()
        except OSError as error:
            self._fail(run, f"cannot be started: {error}")
            return
        self._running[run] = Running(process, time.time(), gpu)
        if not self._starts:
            self._study.record_place()
        self._starts.setdefault(run, time.time())
        what = f"starts: {run.configuration}" if trains else "is evaluated"
        on = f" ({nvidia.VISIBLE}={gpu})" if gpu else ""
        self._panel.say(f"{run.name} {what.removesuffix(': ')}{on}")

    def _freest_gpu(self) -> str | None:
        used = [running.gpu for running in self._running.values()]
        return min(self._gpus, key=used.count, default=None)

    def _poll(self) -> None:
        """Shows the state, and settles the runs that have ended."""
        for run, running in list(self._running.items()):
            if (code := running.process.poll()) is not None:
                del self._running[run]
                self._settle(run, running.process, code)
        self._panel.show(self._status())

    def _settle(self, run: StudyRun, process: Process, code: int) -> None:
        if run.done(self._study.spec):
            self._ended["done"] += 1
            self._seconds.append(time.time() - self._starts[run])
            self._panel.say(f"{run.name} is done")
            self._report(run)
            self._tell(run.configuration)
        elif run in self._stopping:
            self._ended["pruned"] += 1
        elif code == 0 and run.trained and run not in self._evaluated:
            self._waiting.appendleft(run)
        elif self._stop_requested:
            if code not in _STOPPED:
                self._panel.say(f"error: {run.name}: {_reason(process, code)}")
        elif code == 0:
            self._panel.say(
                f"{run.name} was stopped from outside this study; the next start resumes it"
            )
        else:
            self._fail(run, _reason(process, code))

    def _fail(self, run: StudyRun, reason: str) -> None:
        self._ended["failed"] += 1
        self._panel.say(f"error: {run.name} failed: {reason}")
        try:
            run.set_failure(reason)
        except OSError as error:
            self._panel.say(f"error: cannot mark {run.name} as failed: {error.strerror}")
        self._tell(run.configuration)

    def _report(self, run: StudyRun) -> None:
        """Reports the returns so far to Optuna; those of the first seed stand for all."""
        if run.seed == 1:
            spec = self._study.spec
            curve = performance.so_far(run.logdir, spec.frames, spec.performance)
            self._study.trials.report(run.configuration.number, curve)

    def _tell(self, configuration: Configuration) -> None:
        """Tells Optuna how good a configuration is once all of its runs have ended."""
        study = self._study
        runs = [results.collect_run(run, study.spec) for run in study.runs_of(configuration)]
        for rated in results.performances(runs):
            if math.isfinite(rated.value):
                study.trials.tell(configuration.number, rated.value)

    def _prune(self) -> None:
        """From time to time, stops the configurations that Optuna rejects."""
        if self._study.spec.pruner.name == "none" or time.monotonic() < self._next_report:
            return
        began = time.monotonic()
        first = [run for run in self._running if run.seed == 1 and run not in self._stopping]
        for run in [run for run in first if not run.trained]:  # Those only need their score.
            self._report(run)
            if self._study.trials.prune(run.configuration.number):
                self._panel.say(f"pruning configuration {run.configuration.number}")
                running = [r for r in self._running if r.configuration is run.configuration]
                self._stopping.update(running)
                self._interrupt(running)
                waiting = [r for r in self._waiting if r.configuration is run.configuration]
                self._ended["pruned"] += len(waiting)
                self._waiting = deque(r for r in self._waiting if r not in waiting)
        now = time.monotonic()
        self._next_report = now + max(_REPORT_PERIOD_S, 20 * (now - began))  # Files may be long.

    def _status(self) -> StudyStatus:
        frames = self._study.spec.frames
        running = [display.running(run, one.started, frames) for run, one in self._running.items()]
        eta_s = None
        if self._seconds:
            left = max(0.0, self._left + len(running) - sum(one.share for one in running))
            eta_s = left * sum(self._seconds) / len(self._seconds) / self._parallel
        total = sum(self._ended.values()) + len(running) + self._left
        return StudyStatus(running, self._ended, total, self._stop_requested, eta_s)

    # Ending.

    def _on_signal(self, number: int, frame: types.FrameType | None) -> None:
        del frame
        self._stop_requested = True
        self._impatient |= self._requests.insists(number)

    def _stop(self) -> None:
        """Makes all runs save and exit, or exit without saving if the user insists."""
        self._panel.say("stopping: runs save checkpoints (Ctrl-C again to exit immediately)")
        self._interrupt(self._running)
        insisted = 0.0
        deadline = float("inf")
        while self._running:
            if self._impatient and time.monotonic() - insisted >= _INSIST_PERIOD_S:
                if not insisted:
                    deadline = time.monotonic() + _IMPATIENT_S
                    self._panel.say("exiting without saving")
                insisted = time.monotonic()
                self._interrupt(self._running)
            if time.monotonic() > deadline:
                for running in self._running.values():
                    running.process.kill()
            self._poll()
            time.sleep(_POLL_S)

    def _interrupt(self, runs: Iterable[StudyRun]) -> None:
        """Sends runs what Ctrl-C would, so that they save and end."""
        for run in runs:
            process = self._running[run].process
            if process.running:
                os.kill(process.pid, signal.SIGINT)

    def _terminate(self) -> None:
        """Asks the remaining runs to save; there are some only after an error of this program."""
        for running in self._running.values():
            running.process.terminate()


def _gpus_to_share(spec: Spec, parallel: int) -> list[str]:
    """The GPUs among which to divide the runs of a study; empty: each run sees all."""
    sampled = {choice.flag for choice in spec.choices}
    given = [str(spec.flags.get(name)).lower() for name in _DEVICES]
    # A file may name some, too.
    names_some = "flagfile" in spec.flags or not sampled.isdisjoint((*_DEVICES, "flagfile"))
    if parallel == 1 or names_some or any("gpu" in devices for devices in given):
        return []
    gpus = nvidia.visible_gpus()
    return gpus if len(gpus) > 1 else []


def _reason(process: Process, code: int) -> str:
    """Why a run failed, in one line."""
    for line in reversed(process.tail(60)):
        _, found, message = line.partition("error: ")
        if found:
            return message
    return f"{describe_exit(code)} ({process.log})"
