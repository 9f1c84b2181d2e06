"""Ensures that only one run uses a directory, and records its supervisor's process id.

The lock is a kernel lock (flock) on `supervisor.pid`: released on process exit, whatever the cause.
Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
import time
from collections.abc import Callable

from seed_rl.common.errors import UserError
from seed_rl.common.system import files
from seed_rl.common.system.file_lock import try_lock, try_lock_directory

FILE_NAME = "supervisor.pid"
_LARGEST_PID = 1 << 22  # Of Linux.


class RunLock:
    """The lock on `logdir`, held until `release` or process exit.

    Args:
      logdir: the run's directory; created if missing.
      patience_s: how long to wait for the cleanup of a run whose supervisor was killed, or is not
        a process of this machine.
      say: reports that we are waiting.
      what: what takes the directory, for messages.

    Raises:
      UserError: a run is active there, or the directory is not writable.
    """

    def __init__(
        self,
        logdir: pathlib.Path,
        patience_s: float = 1.0,
        say: Callable[[str], None] = lambda text: None,
        what: str = "run",
    ):
        try:
            logdir.mkdir(parents=True, exist_ok=True)
            self._file = files.open_no_link(logdir / FILE_NAME, "a+")
        except OSError as error:
            raise UserError(
                f"Cannot write to {logdir}: {error.strerror}. Choose another directory with "
                "--logdir=DIR."
            ) from error
        started = time.monotonic()
        reported = False
        while not try_lock_directory(self._file.fileno(), logdir):
            pid, _ = _read(logdir)
            waited = time.monotonic() - started
            if waited > (1.0 if _exists(pid) else patience_s):
                self._file.close()
                command = f"./stop_local.sh {shlex.quote(str(logdir))}"
                raise UserError(
                    f"A {what} is active in {logdir} (process {pid}). Stop it with {command}  (or "
                    "seed-rl stop), or choose another directory with --logdir=DIR."
                )
            if waited > 1 and not reported:
                say(
                    f"waiting for the end of the run in {logdir}: it was killed, or is on another "
                    "machine ..."
                )
                reported = True
            time.sleep(0.1)
        try:
            self._file.truncate(0)
            pid = os.getpid()
            os.write(self._file.fileno(), f"{pid} {_started(pid)}\n".encode())
        except OSError as error:
            self._file.close()
            raise UserError(
                f"Cannot write to {logdir}: {error.strerror}. Free some space, or choose another "
                "directory with --logdir=DIR."
            ) from error

    def fileno(self) -> int:
        return self._file.fileno()

    def release(self) -> None:
        """Releases the lock; a process that inherited it may still hold it."""
        self._file.close()


def running_pid(logdir: pathlib.Path) -> int | None:
    """The process id of the supervisor running in `logdir`, or None."""
    try:
        with open(logdir / FILE_NAME, "rb") as file:
            return None if try_lock(file.fileno(), shared=True) else _read(logdir)[0]
    except OSError:
        return None


def is_elsewhere(logdir: pathlib.Path, pid: int) -> bool:
    """Whether the process with that id on this machine is not the run's supervisor.

    The directory may be shared with another machine, or with a container that counts its own ids.
    """
    with contextlib.suppress(OSError):
        _, started = _read(logdir)
        return bool(started) and _exists(pid) and started != _started(pid)
    return False


def _read(logdir: pathlib.Path) -> tuple[int, str]:
    """The supervisor's process id, and when it started ("" in files of older versions).

    The id is 0 if the file is being written or does not name a possible supervisor.
    """
    pid, _, started = (logdir / FILE_NAME).read_bytes()[:40].partition(b" ")
    # A negative number would name a process group, or all processes; 1 is init.
    possible = pid.strip().isdigit() and 1 < int(pid) <= _LARGEST_PID
    return int(pid) if possible else 0, started.decode(errors="replace").strip()


def _started(pid: int) -> str:
    """When the process started, in ticks since the machine's start; "" if it has ended."""
    try:
        status = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return status.rpartition(")")[2].split()[19]  # After the name, which may have any characters.


def _exists(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")
