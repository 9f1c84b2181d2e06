"""Actors that belong to one Python program: its threads, or subprocesses without TensorFlow."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Sequence

import cloudpickle
from absl import flags

from seed_rl.common.acting.actor import Actor, ActorConfig
from seed_rl.common.acting.batched_env import EnvironmentFailure
from seed_rl.common.acting.env_group import Environments
from seed_rl.common.config.options import flag_dictionary
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError
from seed_rl.common.system import scheduling
from seed_rl.common.system.stop_signal import StopSignal

THREADS = "threads"
PROCESSES = "processes"
KINDS = (THREADS, PROCESSES)

_STOP_GRACE_S = 10.0  # For a step in progress and for closing environments.
_PROGRAM = "from seed_rl.common.acting import actor_process; actor_process.main()"


def actor_configs(options: RunConfig) -> list[ActorConfig]:
    """The options of each actor.

    Raises:
      UserError: the environments cannot be divided among actors.
    """
    envs, size = options.num_envs, options.env_batch_size
    if envs % size:
        raise UserError(
            f"num_envs={envs} environments are not a multiple of env_batch_size={size} per actor: "
            f"use {envs - envs % size or size} or {envs - envs % size + size} environments."
        )
    shared = {field.name: getattr(options, field.name) for field in dataclasses.fields(RunConfig)}
    return [ActorConfig(**{**shared, "task": task}) for task in range(envs // size)]


class LocalActors:
    """All actors of a run."""

    def __init__(
        self,
        kind: str,
        environments: Environments,
        configs: Sequence[ActorConfig],
        on_failure: Callable[[], None],
    ):
        """Prepares the actors; `start` starts them.

        Args:
          kind: one of `KINDS`.
          environments: how they create their environments.
          configs: of each actor.
          on_failure: called, in another thread, when an error ends an actor.

        Raises:
          UserError: `environments` cannot be sent to processes.
        """
        self._actors: list[_ThreadActor | _ProcessActor]
        if kind == THREADS:
            self._actors = [_ThreadActor(environments, config, on_failure) for config in configs]
        else:
            payloads = [_pickled(environments, config) for config in configs]
            self._actors = [
                _ProcessActor(config.task, payload, on_failure)
                for config, payload in zip(configs, payloads, strict=True)
            ]

    @property
    def error(self) -> BaseException | None:
        """The first error that ended an actor."""
        return next((actor.error for actor in self._actors if actor.error), None)

    def start(self) -> None:
        """Starts all actors."""
        for actor in self._actors:
            actor.start()

    def leave(self, timeout_s: float = 1.0) -> None:
        """Asks all actors to end, and waits briefly: otherwise they warn of a lost learner."""
        for actor in self._actors:
            actor.stop()
        deadline = time.monotonic() + timeout_s
        for actor in self._actors:
            actor.join(max(0.0, deadline - time.monotonic()))

    def stop(self) -> None:
        """Ends all actors and waits for them; processes that do not end are killed."""
        self.leave(_STOP_GRACE_S)
        for task, actor in enumerate(self._actors):
            if not actor.join(0.0):
                actor.kill()
                if not actor.join(1.0):
                    logging.error(
                        "Actor %d: an environment call does not return; its thread keeps running.",
                        task,
                    )

    def kill(self) -> None:
        """Kills all remaining actors, without waiting."""
        for actor in self._actors:
            actor.kill()


class _ThreadActor:
    """An actor in a thread of this process.

    `stop` asks it to exit and returns immediately, `join` returns whether it has ended.

    Attributes:
      error: what ended it, if not `stop`.
    """

    def __init__(
        self, environments: Environments, config: ActorConfig, on_failure: Callable[[], None]
    ):
        self.error: BaseException | None = None
        self._environments = environments
        self._config = config
        self._on_failure = on_failure
        self._actor = Actor(config)
        self._stop = StopSignal(on_stop=self._actor.close)
        self._thread = threading.Thread(target=self._run, name=f"actor-{config.task}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.request()

    def join(self, timeout_s: float) -> bool:
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def kill(self) -> None:
        self.stop()  # Threads cannot be killed.

    def _run(self) -> None:
        scheduling.use_batch_scheduling()  # This thread, and those that environments start.
        try:
            self._actor.run(self._environments, self._stop)
        except BaseException as error:
            if not self._stop.requested:
                self.error = error
                self._on_failure()
        finally:
            self._actor.close()


class _RemoteTraceback(Exception):
    """The traceback of an exception in another process, as text."""

    def __str__(self) -> str:
        return f"in the actor's process:\n\n{self.args[0]}"


class _ProcessActor:
    """An actor in a fresh Python process; see `_ThreadActor`.

    The process is not forked: TensorFlow's threads and locks do not survive that. It receives its
    work on standard input, and exits when that is closed, even by this process's death.
    """

    def __init__(self, task: int, payload: bytes, on_failure: Callable[[], None]):
        self.error: BaseException | None = None
        self._task = task
        self._payload = payload
        self._on_failure = on_failure
        self._stopping = False
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: threading.Thread | None = None

    def start(self) -> None:
        report, child_report = os.pipe()
        path = [folder or os.getcwd() for folder in sys.path]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(child_report)],
                stdin=subprocess.PIPE,
                pass_fds=(child_report,),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
                start_new_session=True,  # Ctrl-C is for the learner, which then ends the actors.
            )
        except BaseException:
            os.close(report)
            raise
        finally:
            os.close(child_report)
        self._watcher = threading.Thread(
            target=self._watch, args=(report,), name=f"actor-{self._task}", daemon=True
        )
        self._watcher.start()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `_watch` reports why the process ended.
            self._process.stdin.write(len(self._payload).to_bytes(8, "little") + self._payload)
            self._process.stdin.flush()

    def stop(self) -> None:
        self._stopping = True
        if self._process is not None:
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    def join(self, timeout_s: float) -> bool:
        if self._watcher is None:
            return True
        self._watcher.join(timeout_s)
        return not self._watcher.is_alive()

    def kill(self) -> None:
        self._stopping = True
        # Includes the processes of its environments. The id stays valid until `_watch` has waited
        # for it.
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _watch(self, report: int) -> None:
        assert self._process is not None
        with open(report, "rb") as file:
            text = file.read()  # Blocks until the process ends.
        code = self._process.wait()
        if not self._stopping:
            self.error = _error(self._task, code, text)
            self._on_failure()


def _pickled(environments: Environments, config: ActorConfig) -> bytes:
    if environments.config is flags.FLAGS:  # FLAGS cannot be pickled, and are only read.
        values = types.SimpleNamespace(**flag_dictionary())
        environments = dataclasses.replace(environments, config=values)
    try:
        return bytes(cloudpickle.dumps((environments, config)))
    except Exception as error:
        raise UserError(
            f"The function that creates environments, or its config, cannot be sent to a process "
            f"({error}). Create what it uses inside the function, or use actors='{THREADS}'."
        ) from error


def _error(task: int, code: int, report: bytes) -> Exception:
    """The exception that ended a process."""
    if not report:
        return EnvironmentFailure(
            f"The process of actor {task} ended with code {code}; see its output for the reason."
        )
    said = json.loads(report)
    error = (UserError if said["user"] else EnvironmentFailure)(said["message"])
    error.__cause__ = _RemoteTraceback(said["traceback"])
    return error
