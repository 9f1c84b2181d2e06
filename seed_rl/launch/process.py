"""A child process that has its own log and cannot outlive the supervisor."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from seed_rl.common.errors import UserError
from seed_rl.common.system import chatter, files, parent_death

QUIET = {"PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
"""Environment variables of all programs of a run."""
LIBRARY_THREADS = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
"""Environment variables of actors: each uses one core."""
_MAX_CHATTER = 50  # Lines; TensorFlow prints about ten.


class Process:
    """One program of a run, which can be restarted.

    It runs in its own session and process group, so that Ctrl-C in the terminal reaches only the
    supervisor, and killing it includes all its descendants. The kernel signals it when the
    supervisor dies. Use it from the main thread only: that signal is tied to the lifetime of the
    thread that started the child.

    Args:
      name: used in messages.
      command: program and arguments.
      log: file to which its output is appended.
      environment: variables added to the supervisor's environment.
      death_signal: signal the kernel sends it when the supervisor dies.
      niceness: added to its nice value.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: pathlib.Path,
        environment: Mapping[str, str] | None = None,
        death_signal: signal.Signals = signal.SIGKILL,
        niceness: int = 0,
    ):
        self.name = name
        self.log = log
        self._command = list(command)
        self._environment = {**os.environ, **(environment or {})}
        self._death_signal = death_signal
        self._niceness = niceness
        self._popen: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._started = 0.0
        self._ended = 0.0

    @property
    def pid(self) -> int:
        """Id of the process and of its process group."""
        assert self._popen is not None, f"{self.name} was never started"
        return self._popen.pid

    @property
    def started(self) -> bool:
        return self._popen is not None

    def start(self) -> None:
        """Starts or restarts it.

        Raises:
          OSError: it cannot be started, and has not lived.
        """
        self._started = self._ended = time.monotonic()
        with files.open_no_link(self.log, "ab") as log:
            self._log_start = log.tell()
            self._popen = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
                preexec_fn=die_with_parent(os.getpid(), self._death_signal, self._niceness),
            )

    def poll(self) -> int | None:
        """The exit code (negative: the signal that killed it); None while it runs.

        Once it has exited, kills what is left of its process group.
        """
        if self._popen is None or self._popen.returncode is not None:
            return self._popen.returncode if self._popen else None
        code = self._popen.poll()
        if code is not None:
            self._ended = time.monotonic()
            self._signal_group(signal.SIGKILL)
        return code

    @property
    def running(self) -> bool:
        return self.started and self.poll() is None

    @property
    def lifetime_s(self) -> float:
        """How long it has run since the last start."""
        return (time.monotonic() if self.running else self._ended) - self._started

    def terminate(self) -> None:
        """Sends SIGTERM to the process itself."""
        if self.running:
            os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kills its whole process group."""
        if self.running:
            self._signal_group(signal.SIGKILL)

    def tail(self, lines: int) -> list[str]:
        """The last lines worth reading that it has printed since the last start."""
        try:
            with open(self.log, "rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start, size - 200 * (lines + _MAX_CHATTER)))
                text = log.read().decode(errors="replace")
        except OSError:
            return []
        printed = [line for line in text.splitlines() if line.strip()]
        return [line for line in printed if not chatter.is_chatter(line)][-lines:]

    def last_words(self, code: int) -> str:
        """How it exited, with the end of its log; for a `UserError` just the message."""
        lines = self.tail(30)
        errors = [line for line in lines if line.startswith("error: ")]
        if code == UserError.exit_code and errors:
            return f"{self.name}: {errors[-1].removeprefix('error: ')}"
        text = "".join(f"\n  | {line}" for line in lines)
        return f"the {self.name} {describe_exit(code)} ({self.log}):{text}"

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def describe_exit(code: int) -> str:
    """How a program exited, for messages."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def die_with_parent(
    parent: int, death_signal: signal.Signals, niceness: int = 0
) -> Callable[[], None]:
    """The function (`preexec_fn`) that the child runs between fork and exec.

    Args:
      parent: process id of the parent; the child ends at once if it is gone already.
      death_signal: signal the kernel sends the child when the parent dies.
      niceness: added to its nice value.
    """

    def prepare() -> None:
        parent_death.signal_me(death_signal)
        if os.getppid() != parent:  # The supervisor died before.
            os._exit(1)
        if niceness:
            os.nice(niceness)

    return prepare
