"""File locks, which the kernel releases on process exit."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import pathlib
from collections.abc import Iterator

from seed_rl.common.errors import UserError
from seed_rl.common.system import files


def try_lock(descriptor: int, shared: bool = False) -> bool:
    """Locks an open file; returns False if another open file description holds the lock.

    Args:
      descriptor: of the file.
      shared: whether other shared locks are allowed at the same time, as for asking whether it is
        locked.

    Raises:
      OSError: the file system does not support locks.
    """
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def try_lock_directory(descriptor: int, directory: pathlib.Path) -> bool:
    """As `try_lock` for a file in `directory`; where locks are not supported, warns instead."""
    try:
        return try_lock(descriptor)
    except OSError as error:
        logging.warning(
            "%s does not support file locks (%s): do not start a second run there.",
            directory,
            error,
        )
        return True


@contextlib.contextmanager
def spared(directory: str | os.PathLike[str]) -> Iterator[None]:
    """Keeps systemd-tmpfiles from removing old files of a temporary directory within the context.

    It leaves locked directories alone.
    """
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # Not every file system has locks.
            try_lock(descriptor)
        yield
    finally:
        os.close(descriptor)


class LearnerLock:
    """Prevents a second learner from writing to a directory.

    Held until `release` or process exit.
    """

    def __init__(self, logdir: pathlib.Path):
        """Takes the lock.

        Args:
          logdir: the run's existing directory.

        Raises:
          UserError: another learner holds the lock, or the directory cannot be written.
        """
        try:
            self._file = files.open_no_link(logdir / "learner.pid", "a+")
        except OSError as error:
            raise UserError(f"Cannot write to --logdir={logdir}: {error.strerror}.") from error
        if not try_lock_directory(self._file.fileno(), logdir):
            self._file.seek(0)
            pid = self._file.read().strip()
            self._file.close()
            raise UserError(
                f"A learner is already running in --logdir={logdir} (process {pid}). Stop it, or "
                "choose another directory."
            )
        with contextlib.suppress(OSError):  # Train even if the disk is full.
            self._file.truncate(0)
            self._file.write(f"{os.getpid()}\n")
            self._file.flush()

    def release(self) -> None:
        """Releases the lock."""
        with contextlib.suppress(OSError):  # Closing flushes, which fails on a full disk.
            self._file.close()
