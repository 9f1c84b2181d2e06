"""Keeps a learner, its actors and TensorBoard going, and ends them together."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import signal
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Sequence

from seed_rl.common.errors import NotSavedError, UserError
from seed_rl.common.run_files import progress
from seed_rl.common.system.backoff import backoff_s
from seed_rl.common.system.stop_signal import Requests
from seed_rl.launch.actor_record import Actor
from seed_rl.launch.guardian import Guardian
from seed_rl.launch.log_text import last_words, tail
from seed_rl.launch.panel import Panel, Status
from seed_rl.launch.process import Process, describe_exit
from seed_rl.launch.run_lock import RunLock
from seed_rl.launch.run_state import RunState

_LIBRARY_THREADS = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
_QUIET = {"PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}


@dataclasses.dataclass(frozen=True)
class SupervisorConfig:
    """How a run is watched. All times in seconds.

    Attributes:
      logdir: directory of the run.
      actors: number of actors.
      envs_per_actor: environments in each.
      fresh: whether to move an earlier run aside.
      stop_timeout_s: how long the learner may take to save its checkpoint and exit.
      kill_timeout_s: how long the others may take to exit.
      first_backoff_s: pause before a crashed actor's first restart; doubled for each further one.
      max_backoff_s: the longest such pause.
      healthy_s: an actor that ran this long before it crashed starts again with a clean record.
      max_failures: an actor that crashed this often in a row, or twice with an error that is the
        user's to mend, is given up; the run ends when no other actor is left.
      silence_s: an actor that the learner has not heard of for longer is named in the panel.
      poll_s: time between looks at the processes.
    """

    logdir: pathlib.Path
    actors: int
    envs_per_actor: int = 1
    fresh: bool = False
    stop_timeout_s: float = 300.0
    kill_timeout_s: float = 5.0
    first_backoff_s: float = 0.5
    max_backoff_s: float = 30.0
    healthy_s: float = 30.0
    max_failures: int = 6
    silence_s: float = progress.SILENCE_S
    poll_s: float = 0.1


class Failure(Exception):
    """The run cannot go on; the message is for the user."""

    def __init__(self, message: str, code: int = 1):
        super().__init__(message)
        self.code = code


class Supervisor:
    """One run on this machine.

    Args:
      config: see there.
      learner_command: the learner's program and arguments, given the scratch directory (for a unix
        socket, say), which is private and removed at the end.
      actor_command: an actor's, given its task number and the scratch directory.
      tensorboard_command: None: no TensorBoard.
      panel: shows progress and messages.
    """

    def __init__(
        self,
        config: SupervisorConfig,
        learner_command: Callable[[pathlib.Path], Sequence[str]],
        actor_command: Callable[[int, pathlib.Path], Sequence[str]],
        tensorboard_command: Sequence[str] | None,
        panel: Panel,
    ):
        self._config = config
        self._learner_command = learner_command
        self._actor_command = actor_command
        self._tensorboard_command = tensorboard_command
        self._panel = panel
        self._requests = Requests()
        self._told_to_stop = False
        self._impatient = False  # Somebody wants the end at once.
        self._state: RunState

    def run(self) -> int:
        """Runs until the end of training, a failure, or SIGINT, SIGTERM or SIGHUP.

        Returns:
          The exit code: 0 after the end of training or an orderly stop, 2 for an error that is
          the user's to mend, 5 if the last checkpoint could not be saved, 130 if what was not
          saved was given up (a second Ctrl-C, say), otherwise 1.

        Raises:
          UserError: the directory cannot be used; nothing was started.
        """
        with contextlib.ExitStack() as stack:
            lock = self._prepare_logdir()
            stack.callback(lock.release)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                stack.callback(signal.signal, number, signal.signal(number, self._on_signal))
            scratch = pathlib.Path(tempfile.mkdtemp(prefix="seed_rl_"))
            self._guardian = Guardian(lock.fileno(), self._config.stop_timeout_s, scratch)
            stack.callback(self._guardian.close)
            self._create_processes(scratch)
            stack.callback(self._kill_all)
            with self._panel:
                return self._supervise()

    def _prepare_logdir(self) -> RunLock:
        """Locks the directory, after moving an earlier run aside if that is asked for."""
        logdir = self._config.logdir
        lock = RunLock(logdir, self._config.stop_timeout_s, self._panel.say)
        if self._config.fresh and any(path.name != "supervisor.pid" for path in logdir.iterdir()):
            aside = logdir.with_name(f"{logdir.name}.{time.strftime('%Y%m%d-%H%M%S')}")
            try:
                logdir.rename(aside)
            except OSError as error:
                raise UserError(f"Cannot move {logdir} to {aside}: {error.strerror}.") from error
            lock.release()
            lock = RunLock(logdir)
            self._panel.say(f"the earlier run is now in {aside}")
        try:
            (logdir / "logs").mkdir(exist_ok=True)
            # Of an earlier run: "done" is not true any more.
            (logdir / progress.FILE_NAME).unlink(missing_ok=True)
        except OSError as error:
            raise UserError(f"Cannot write to {logdir}: {error.strerror}.") from error
        return lock

    def _create_processes(self, scratch: pathlib.Path) -> None:
        logs = self._config.logdir / "logs"
        # Killed by the kernel with the supervisor, except that the learner may save.
        self._learner = Process(
            "learner",
            self._learner_command(scratch),
            logs / "learner.log",
            _QUIET,
            death_signal=signal.SIGTERM,
        )
        envs = self._config.envs_per_actor
        self._actors = [
            Actor(
                Process(
                    f"actor {task}",
                    self._actor_command(task, scratch),
                    logs / f"actor-{task}.log",
                    {**_QUIET, **_LIBRARY_THREADS},
                ),
                range(task * envs, (task + 1) * envs),
                self._config.healthy_s,
                self._config.max_failures,
            )
            for task in range(self._config.actors)
        ]
        self._tensorboard: Process | None = None
        if self._tensorboard_command:
            self._tensorboard = Process(
                "TensorBoard", self._tensorboard_command, logs / "tensorboard.log", niceness=10
            )

    def _supervise(self) -> int:
        try:
            self._state = RunState(self._config.logdir)
            self._start(self._learner, patient=True)
            for actor in self._actors:
                self._start(actor.process)
            while not self._told_to_stop:
                self._show()
                if (code := self._learner.poll()) is not None:
                    return self._learner_ended(code)
                for actor in self._actors:
                    self._look_after(actor)
                self._look_after_tensorboard()
                time.sleep(self._config.poll_s)
            return self._stop()
        except Failure as failure:
            self._panel.say(f"error: {failure}")
            self._stop_learner(failed=True)
            return failure.code
        except BaseException:
            self._stop_learner(failed=True)  # Whatever our fault is, it must not cost a checkpoint.
            raise

    # Starting, watching, restarting.

    def _start(self, process: Process, patient: bool = False) -> None:
        try:
            process.start()
        except OSError as error:
            raise Failure(f"{process.name} cannot be started: {error}") from error
        self._guardian.watch(process.pid, patient)

    def _look_after(self, actor: Actor) -> None:
        """Notices a crash, and restarts after the pause."""
        process = actor.process
        if actor.restart_at is not None:
            if time.monotonic() >= actor.restart_at:
                actor.restart_at = None
                self._start(process)
            return
        code = process.poll()
        if code is None:
            return
        self._guardian.forget(process.pid)
        actor.crashed(code)
        self._check_hope(actor, code)
        pause = backoff_s(actor.failures, self._config.first_backoff_s, self._config.max_backoff_s)
        actor.restart_at = time.monotonic() + pause
        why = "".join(f": {line}" for line in tail(process, 1) if code > 0)
        if code == 0:
            why = ", which nobody asked of it (does its environment end the program?)"
        self._panel.say(
            f"{process.name} {describe_exit(code)}{why}; restarting it in {pause:g} s "
            f"({process.log})"
        )

    def _check_hope(self, actor: Actor, code: int) -> None:
        """Ends the run when restarting actors has no point: as long as one works, it goes on."""
        if not all(other.hopeless for other in self._actors):
            return
        if code == UserError.exit_code:
            raise Failure(last_words(actor.process, code), UserError.exit_code)
        raise Failure(f"every actor keeps crashing. {last_words(actor.process, code)}")

    def _look_after_tensorboard(self) -> None:
        """Starts it when training has begun: until then the learner needs the processor."""
        if self._tensorboard is None:
            return
        if not self._tensorboard.started:
            if self._state.phase == "training":
                self._start(self._tensorboard)
        elif (code := self._tensorboard.poll()) is not None:
            self._guardian.forget(self._tensorboard.pid)
            log = self._tensorboard.log
            self._panel.say(f"TensorBoard {describe_exit(code)}; training goes on ({log})")
            self._tensorboard = None

    def _show(self, doing: str | None = None) -> None:
        told = self._state.progress()
        alive = sum(actor.process.running for actor in self._actors)
        warnings = tuple(self._warnings(told))
        resumes_from = self._state.resumes_from
        self._panel.show(Status(told, alive, len(self._actors), doing, resumes_from, warnings))

    def _warnings(self, told: progress.Progress | None) -> Iterator[str]:
        if problem := self._state.problem():
            yield problem
        if told is None or self._told_to_stop:
            return
        silent_envs = dict(told.silent_envs)
        for actor in self._actors:
            silence_s = actor.silence_s(silent_envs)
            if silence_s > self._config.silence_s:
                yield f"{actor.process.name} silent for {silence_s:.0f} s"

    # Ending.

    def _on_signal(self, number: int, frame: types.FrameType | None) -> None:
        del frame
        self._told_to_stop = True
        self._impatient |= self._requests.insists(number)

    def _learner_ended(self, code: int) -> int:
        self._guardian.forget(self._learner.pid)
        self._show()
        self._stop_others()
        if code == 0 and self._state.phase == "done":
            self._panel.finish("training has ended")
            return 0
        return self._stopped(code)

    def _stop(self) -> int:
        """Ends all in good order: the learner first, as it saves what was learned."""
        self._panel.say("stopping: the learner saves a checkpoint (Ctrl-C again: end at once)")
        code = self._stop_learner()
        if code is None:
            return 130
        return self._stopped(code)

    def _stopped(self, code: int) -> int:
        """Says how the learner ended before the end of training; returns our exit code."""
        unborn = code == -signal.SIGTERM and self._state.phase == "starting"
        if code == 0 or unborn:
            self._panel.finish(f"stopped; {self._state.outlook()}")
            return 0
        if code == NotSavedError.exit_code:
            self._panel.say(f"error: {self._state.loss()}")
            return code
        reason = self._state.cannot_write()  # Then the log has no room for it, either.
        words = last_words(self._learner, code)
        self._panel.say(f"error: {reason}; {words}" if reason else f"error: {words}")
        return code if code == UserError.exit_code else 1

    def _stop_learner(self, failed: bool = False) -> int | None:
        """Ends the learner, then the rest.

        Returns:
          The learner's exit code; None if the user did not want to wait for it.
        """
        self._impatient = False  # Nobody can insist on what had not begun.
        self._learner.terminate()
        deadline = time.monotonic() + self._config.stop_timeout_s
        while (code := self._learner.poll()) is None and time.monotonic() < deadline:
            if self._impatient:
                self._panel.say(f"ending at once, unsaved; {self._state.outlook()}")
                return None
            self._show("stopping" if not failed else "ending")
            time.sleep(self._config.poll_s)
        if code is None:
            self._panel.say(
                f"the learner did not exit within {self._config.stop_timeout_s:g} s; killing it"
            )
            self._learner.kill()
        self._stop_others()
        return code if code is not None else -signal.SIGKILL

    def _stop_others(self) -> None:
        others = [actor.process for actor in self._actors]
        others += [self._tensorboard] if self._tensorboard else []
        for process in others:
            process.terminate()
        deadline = time.monotonic() + self._config.kill_timeout_s
        while any(process.running for process in others) and time.monotonic() < deadline:
            if self._impatient:
                return
            time.sleep(self._config.poll_s / 4)

    def _kill_all(self) -> None:
        """Leaves nothing behind, whatever happened before."""
        processes = [self._learner, *(actor.process for actor in self._actors)]
        processes += [self._tensorboard] if self._tensorboard else []
        for process in processes:
            process.kill()
        while any(process.running for process in processes):
            time.sleep(0.01)
        for process in processes:
            if process.started:
                self._guardian.forget(process.pid)
