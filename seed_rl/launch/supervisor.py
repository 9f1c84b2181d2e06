"""Runs a learner, its actors and TensorBoard, restarts crashed actors, stops all together.

Several learners that train together (`--learners`) share the actors, and end together: if one
crashes, all of them start again from the last checkpoint.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import pathlib
import re
import signal
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Sequence

from seed_rl.common.errors import NotSavedError, UserError
from seed_rl.common.run_files import progress
from seed_rl.common.system import terminal
from seed_rl.common.system.file_lock import LearnerLock
from seed_rl.common.system.stop_signal import Requests
from seed_rl.launch.actor_record import SupervisedActor
from seed_rl.launch.guardian import Guardian
from seed_rl.launch.panel import Panel, Status
from seed_rl.launch.process import LIBRARY_THREADS, QUIET, Process, describe_exit
from seed_rl.launch.proxy import Proxy
from seed_rl.launch.restarts import (
    FOLLOW_S,
    CrashRecord,
    RestartPolicy,
    is_final,
    to_blame,
)
from seed_rl.launch.run_lock import FILE_NAME, RunLock
from seed_rl.launch.run_state import RunState

_PROXY_SERVES_S = 3.0
"""A proxy that exits sooner failed to start: its port is taken, or a certificate is invalid."""

_OF_A_RUN = re.compile(rf"checkpoints|learner\.pid|{progress.FILE_NAME}|ckpt-\d+\.index")
"""Names of which a run's directory, also of an original program, has at least one."""

_SHORTAGES = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC}
"""Errors of a start that may pass by themselves."""

TENSORBOARD = "TensorBoard"
"""TensorBoard's name in messages and, with its address, on the panel."""


@dataclasses.dataclass(frozen=True)
class SupervisorConfig:
    """How a run is supervised.

    Attributes:
      logdir: the run's directory.
      actors: number of actors.
      remote_actors: additional actors, started by others; they are only watched.
      envs_per_actor: environments per actor.
      learners: number of learners, which divides that of actors.
      fresh: whether to move an earlier run aside.
      stop_timeout_s: how long the learner may take to save its checkpoint and exit.
      kill_timeout_s: how long the other processes may take to exit.
      restarts: when crashed actors start again. The run fails once all are given up, or if one that
        has never worked exits with a `UserError`.
      silence_s: the panel names actors whose environments have been silent for longer.
      poll_s: polling interval.
    """

    logdir: pathlib.Path
    actors: int
    remote_actors: int = 0
    envs_per_actor: int = 1
    learners: int = 1
    fresh: bool = False
    stop_timeout_s: float = 300.0
    kill_timeout_s: float = 5.0
    restarts: RestartPolicy = RestartPolicy()
    silence_s: float = progress.SILENCE_S
    poll_s: float = 0.1


class Failure(Exception):
    """The run cannot continue; the message is for the user."""

    def __init__(self, message: str, code: int = 1):
        super().__init__(message)
        self.code = code


class Shortage(Failure):
    """A process cannot be started for now, for lack of memory, processes, files or space."""


class Supervisor:
    """One run on this machine.

    Args:
      config: the run's directory, size and timeouts.
      learner_command: `fn(index, scratch)` returns a learner's program and arguments; `scratch` is
        a private directory (e.g. for a Unix socket) that is removed on exit.
      actor_command: `fn(task, scratch)` returns an actor's program and arguments.
      tensorboard_command: TensorBoard's program and arguments; None: no TensorBoard.
      proxy: `fn(scratch)` returns the proxy in front of the learner; None: there is none.
      panel: shows progress and messages.
    """

    def __init__(
        self,
        config: SupervisorConfig,
        learner_command: Callable[[int, pathlib.Path], Sequence[str]],
        actor_command: Callable[[int, pathlib.Path], Sequence[str]],
        tensorboard_command: Sequence[str] | None,
        panel: Panel[Status],
        proxy: Callable[[pathlib.Path], Proxy] | None = None,
    ):
        self._config = config
        self._learner_command = learner_command
        self._actor_command = actor_command
        self._tensorboard_command = tensorboard_command
        self._panel = panel
        self._proxy_in = proxy
        self._requests = Requests()
        self._stop_requested = False
        self._impatient = False  # The user wants to exit immediately.
        self._state: RunState

    def run(self) -> int:
        """Runs until training ends, a failure, or SIGINT, SIGTERM or SIGHUP.

        Returns:
          The exit code: 0 when training ended or was stopped, 2 for a user error, 5 if the last
          checkpoint could not be saved, 130 if the user interrupted saving (e.g. a second Ctrl-C),
          otherwise 1.

        Raises:
          UserError: the directory cannot be used; nothing was started.
        """
        with contextlib.ExitStack() as stack:
            lock = self._prepare_logdir()
            stack.callback(lock.release)
            for number in terminal.stop_signals():
                stack.callback(signal.signal, number, signal.signal(number, self._on_signal))
            scratch = pathlib.Path(tempfile.mkdtemp(prefix="seed_rl_"))
            self._guardian = Guardian(lock.fileno(), self._config.stop_timeout_s, scratch)
            stack.callback(self._guardian.close)
            self._create_processes(scratch)
            stack.callback(self._kill_all)
            with self._panel:
                return self._supervise()

    def _prepare_logdir(self) -> RunLock:
        """Locks the directory, after moving an earlier run aside if the config says so."""
        logdir = self._config.logdir
        left = {path.name for path in logdir.glob("*")} - {FILE_NAME}
        moves = self._config.fresh and bool(left)
        if moves and not left <= {"logs"} and not any(map(_OF_A_RUN.fullmatch, left)):
            raise UserError(
                f"{logdir} is not a run, so --restart=fresh does not move it aside. Name another "
                "directory."
            )
        lock = RunLock(logdir, self._config.stop_timeout_s, self._panel.say)
        if moves:
            aside = logdir.with_name(f"{logdir.name}.{time.strftime('%Y%m%d-%H%M%S')}")
            learner = LearnerLock(logdir)  # One may run without a supervisor.
            try:
                logdir.rename(aside)
            except OSError as error:
                raise UserError(f"Cannot move {logdir} to {aside}: {error.strerror}.") from error
            finally:
                learner.release()
            lock.release()
            lock = RunLock(logdir)
            self._panel.say(f"the earlier run is now in {aside}")
        try:
            (logdir / "logs").mkdir(exist_ok=True)
            # An earlier run's "done" is no longer true.
            progress.forget(logdir)
        except OSError as error:
            raise UserError(f"Cannot write to {logdir}: {error.strerror}.") from error
        return lock

    def _create_processes(self, scratch: pathlib.Path) -> None:
        logs = self._config.logdir / "logs"
        # If the supervisor dies, the kernel kills the others, but lets the learner save.
        self._learners = [
            Process(
                f"learner {index}" if self._config.learners > 1 else "learner",
                self._learner_command(index, scratch),
                logs / (f"learner-{index}.log" if index else "learner.log"),
                QUIET,
                death_signal=signal.SIGTERM,
            )
            for index in range(self._config.learners)
        ]
        self._crashes = CrashRecord(self._config.restarts)
        envs = self._config.envs_per_actor
        each = self._config.actors // self._config.learners
        self._actors = [
            SupervisedActor(
                Process(
                    f"actor {task}",
                    self._actor_command(task, scratch),
                    logs / f"actor-{task}.log",
                    {**QUIET, **LIBRARY_THREADS},
                ),
                range(task % each * envs, (task % each + 1) * envs),
                self._config.restarts,
            )
            for task in range(self._config.actors)
        ]
        self._proxy: Process | None = None
        self._proxy_served = False
        self._proxy_crashes = CrashRecord(self._config.restarts)
        self._proxy_start: float | None = None  # When to restart it.
        if self._proxy_in:
            proxy = self._proxy_in(scratch)
            self._proxy = Process("proxy", proxy.command(), logs / "proxy.log", proxy.environment())
        self._tensorboard: Process | None = None
        if self._tensorboard_command:
            self._tensorboard = Process(
                TENSORBOARD, self._tensorboard_command, logs / "tensorboard.log", niceness=10
            )

    def _supervise(self) -> int:
        try:
            self._state = RunState(self._config.logdir, self._config.fresh)
            if self._proxy:
                self._start(self._proxy)
            self._start_learners()
            while not self._stop_requested:
                self._show()
                if any(learner.poll() is not None for learner in self._learners):
                    if (code := self._learner_ended()) is not None:
                        return code
                for actor in self._actors:
                    if self._stop_requested:  # Starting many actors takes long.
                        break
                    self._look_after(actor)
                self._look_after_tensorboard()
                self._look_after_proxy()
                time.sleep(self._config.poll_s)
            return self._stop()
        except Failure as failure:
            self._panel.say(f"error: {failure}")
            self._stop_learner(failed=True)
            return failure.code
        except BaseException:
            self._stop_learner(failed=True)  # A bug here must not cost a checkpoint.
            raise

    # Starting, watching, restarting.

    def _start(self, process: Process, patient: bool = False) -> None:
        try:
            process.start()
        except OSError as error:
            kind = Shortage if error.errno in _SHORTAGES else Failure
            raise kind(f"{process.name} cannot be started: {error}") from error
        self._guardian.watch(process.pid, patient)

    def _start_learners(self) -> None:
        for learner in self._learners:
            self._start(learner, patient=True)

    def _look_after(self, actor: SupervisedActor) -> None:
        """Starts the actor, detects a crash, and restarts it after a pause."""
        process = actor.process
        if actor.start_at is not None:
            if time.monotonic() >= actor.start_at:
                actor.start_at = None
                try:
                    self._start(process)
                except Shortage as failure:
                    self._crashed(actor, failure.code, str(failure), str(failure))
            return
        code = process.poll()
        if code is None:
            return
        report = self._state.progress()
        if code == 0 and report and report.phase in ("saving", "done"):
            return  # The learner has told it that training is done.
        self._guardian.forget(process.pid)
        why = "".join(f": {line}" for line in process.tail(1) if code > 0)
        if code == 0:
            why = " unexpectedly (does its environment exit the program?)"
        what = f"{process.name} {describe_exit(code)}{why}"
        self._crashed(actor, code, what, process.last_words(code))

    def _crashed(self, actor: SupervisedActor, code: int, what: str, details: str) -> None:
        """Has the actor restarted after a pause, if that may help."""
        pause = actor.crashed(code, trains=self._state.phase != "starting")
        self._check_hope(actor, code, details)
        actor.start_at = time.monotonic() + pause
        self._panel.say(f"{what}; restarting it in {pause:g} s ({actor.process.log})")

    def _check_hope(self, actor: SupervisedActor, code: int, details: str) -> None:
        """Fails the run once no actor is worth restarting; while one works, it continues.

        An actor that could not even start fails it immediately: the user should fix that first.
        """
        silent = self._silent_elsewhere(self._state.progress())
        works = len(silent) < self._config.remote_actors
        works |= not all(other.hopeless for other in self._actors)
        if works and not actor.cannot_start:
            return
        if code == UserError.exit_code:
            raise Failure(details, UserError.exit_code)
        raise Failure(f"every actor keeps crashing. {details}")

    def _look_after_tensorboard(self) -> None:
        """Starts TensorBoard once training has begun: until then the learner needs the CPU."""
        if self._tensorboard is None:
            return
        if not self._tensorboard.started:
            if self._state.phase == "training":
                try:
                    self._start(self._tensorboard)
                except Failure as failure:
                    self._panel.say(f"{failure}; training continues")
                    self._tensorboard = None
        elif (code := self._tensorboard.poll()) is not None:
            self._guardian.forget(self._tensorboard.pid)
            why = "".join(f": {line}" for line in self._tensorboard.tail(1))
            self._panel.say(
                f"TensorBoard {describe_exit(code)}{why}; training continues "
                f"({self._tensorboard.log})"
            )
            self._tensorboard = None

    def _look_after_proxy(self) -> None:
        """Restarts the proxy while remote actors wait; fails the run if it never served."""
        if self._proxy is None or (code := self._proxy.poll()) is None:
            return
        if self._proxy_start is None:
            self._guardian.forget(self._proxy.pid)
            self._proxy_served |= self._proxy.lifetime_s >= _PROXY_SERVES_S
            if not self._proxy_served:
                raise Failure(self._proxy.last_words(code), UserError.exit_code)
            self._restart_proxy(self._proxy, f"the proxy {describe_exit(code)}")
        elif time.monotonic() >= self._proxy_start:
            self._proxy_start = None
            try:
                self._start(self._proxy)
            except Shortage as failure:
                self._restart_proxy(self._proxy, f"the {failure}")

    def _restart_proxy(self, proxy: Process, why: str) -> None:
        """Has the proxy restarted after a pause."""
        self._proxy_crashes.crashed(proxy.lifetime_s)
        pause_s = self._proxy_crashes.pause_s
        self._proxy_start = time.monotonic() + pause_s
        self._panel.say(f"{why}; restarting it in {pause_s:g} s ({proxy.log})")

    def _show(self, doing: str | None = None) -> None:
        report = self._state.progress()
        actors, remote = self._config.actors, self._config.remote_actors
        alive = sum(actor.process.running for actor in self._actors)
        alive += remote - len(self._silent_elsewhere(report))
        warnings = tuple(self._warnings(report))
        resumes_from = self._state.resumes_from
        gone = TENSORBOARD if self._tensorboard is None else None
        self._panel.show(
            Status(report, alive, actors + remote, doing, resumes_from, warnings, gone)
        )

    def _warnings(self, report: progress.Progress | None) -> Iterator[str]:
        if problem := self._state.problem():
            yield problem
        if report is None or self._stop_requested:
            return
        others = [self._state.progress_of(i) for i in range(1, len(self._learners))]
        for index, other in enumerate(others, 1):
            if other is not None and other.warning:
                yield f"learner {index}: {other.warning}"
        silent_envs = [dict(r.silent_envs) if r else {} for r in (report, *others)]
        for task, actor in enumerate(self._actors):
            learner = task * len(self._learners) // len(self._actors)
            silence_s = actor.silence_s(silent_envs[learner])
            if silence_s > self._config.silence_s:
                yield f"{actor.process.name} silent for {silence_s:.0f} s"
        for task, silence_s in self._silent_elsewhere(report).items():
            if silence_s > self._config.silence_s:
                yield f"actor {task}, started elsewhere, silent for {silence_s:.0f} s"

    def _silent_elsewhere(self, report: progress.Progress | None) -> dict[int, float]:
        """By task, seconds of silence of actors started elsewhere; without those that call."""
        first, envs = self._config.actors, self._config.envs_per_actor
        tasks = range(first, first + self._config.remote_actors)
        if report is None:
            return dict.fromkeys(tasks, 0.0)
        silent_envs = dict(report.silent_envs)
        silence = {task: [silent_envs.get(task * envs + i) for i in range(envs)] for task in tasks}
        return {
            task: min(filter(None, seconds), default=0.0)
            for task, seconds in silence.items()
            if None not in seconds
        }

    # Ending.

    def _on_signal(self, number: int, frame: types.FrameType | None) -> None:
        del frame
        self._stop_requested = True
        self._impatient |= self._requests.insists(number)

    def _learner_ended(self) -> int | None:
        """Ends the run after a learner did; returns the exit code, None if the run continues."""
        learner = self._first_ended()
        if learner is None:
            return None  # A stop was requested.
        code = learner.poll()
        assert code is not None
        for process in self._learners:
            self._guardian.forget(process.pid)
        self._show()
        if self._restarts_learners(learner, code):
            if not self._stop_requested:
                self._state.restart()
                self._start_learners()
                return None
            code = 0  # It has been told of, and no learner runs that could save.
        self._stop_others()
        if code == 0 and self._state.phase == "done":
            self._panel.finish(self._state.ending())
            return 0
        return self._stopped(code, learner)

    def _first_ended(self) -> Process | None:
        """Waits for all learners; returns the one to blame, None if a stop was requested."""
        ended: list[Process] = []
        deadline = float("inf")
        while True:
            ended += [p for p in self._learners if p not in ended and p.poll() is not None]
            if len(ended) == len(self._learners):
                return ended[to_blame([process.poll() or 0 for process in ended])]
            if self._stop_requested:
                return None
            if deadline == float("inf") and any(p.poll() for p in ended):
                deadline = time.monotonic() + FOLLOW_S
            if time.monotonic() > deadline:
                for process in self._learners:
                    process.kill()
            self._show("ending")
            time.sleep(self._config.poll_s)

    def _restarts_learners(self, learner: Process, code: int) -> bool:
        """Whether to restart all learners after one has crashed; waits for the time or a stop."""
        if len(self._learners) == 1 or is_final(code):
            return False
        report = self._state.progress()
        if not self._crashes.failures and not (report and report.train_steps):
            return False  # It could not even start.
        self._crashes.crashed(learner.lifetime_s)
        if self._crashes.given_up:
            return False
        pause = self._crashes.pause_s
        why = "".join(f": {line}" for line in learner.tail(1) if code > 0)
        self._panel.say(
            f"{learner.name} {describe_exit(code)}{why}; restarting all learners from the last "
            f"checkpoint in {pause:g} s ({learner.log})"
        )
        deadline = time.monotonic() + pause
        while time.monotonic() < deadline and not self._stop_requested:
            time.sleep(self._config.poll_s)
        return True

    def _stop(self) -> int:
        """Stops the learner first, as it saves a checkpoint, then the other processes."""
        self._panel.say("stopping: saving a checkpoint (Ctrl-C again to exit immediately)")
        code = self._stop_learner()
        if code is None:
            return 130
        return self._stopped(code, self._learners[0])

    def _stopped(self, code: int, learner: Process) -> int:
        """Reports how the learner exited before training ended; returns our exit code."""
        stopped_early = code == -signal.SIGTERM and self._state.phase == "starting"
        if code == 0 or stopped_early:
            self._panel.finish(f"stopped; {self._state.outlook()}")
            return 0
        if code == NotSavedError.exit_code:
            self._panel.say(f"error: {self._state.loss()}")
            return code
        reason = self._state.cannot_write()  # On a full disk the log may not say why.
        words = learner.last_words(code)
        self._panel.say(f"error: {reason}; {words}" if reason else f"error: {words}")
        return code if code == UserError.exit_code else 1

    def _stop_learner(self, failed: bool = False) -> int | None:
        """Stops the learner, then the other processes.

        Returns:
          The learner's exit code; None if the user interrupted the wait.
        """
        self._impatient = False  # Only later signals mean "exit immediately".
        for learner in self._learners:
            learner.terminate()
        deadline = time.monotonic() + self._config.stop_timeout_s
        while any(p.running for p in self._learners) and time.monotonic() < deadline:
            if self._impatient:
                self._panel.say(f"exiting without saving; {self._state.outlook()}")
                return None
            self._show("stopping" if not failed else "ending")
            time.sleep(self._config.poll_s)
        code = self._learners[0].poll()  # It has saved the checkpoint.
        for learner in self._learners:
            if learner.running:
                self._panel.say(
                    f"the {learner.name} did not exit within {self._config.stop_timeout_s:g} s; "
                    "killing it"
                )
                learner.kill()
        self._stop_others()
        return code if code is not None else -signal.SIGKILL

    def _others(self) -> list[Process]:
        """All processes but the learners."""
        others = [actor.process for actor in self._actors]
        return others + [process for process in (self._tensorboard, self._proxy) if process]

    def _stop_others(self) -> None:
        others = self._others()
        for process in others:
            process.terminate()
        deadline = time.monotonic() + self._config.kill_timeout_s
        while any(process.running for process in others) and time.monotonic() < deadline:
            if self._impatient:
                return
            time.sleep(self._config.poll_s / 4)

    def _kill_all(self) -> None:
        """Kills whatever is still running."""
        processes = [*self._learners, *self._others()]
        for process in processes:
            process.kill()
        while any(process.running for process in processes):
            time.sleep(0.01)
        for process in processes:
            if process.started:
                self._guardian.forget(process.pid)
