"""Locks on files that the kernel lets go of when their holder ends, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import pathlib

from seed_rl.common.errors import UserError


def try_lock(descriptor: int) -> bool:
    """Locks an open file; False if another process (or another opening of it) holds the lock.

    Raises:
      OSError: the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class LearnerLock:
    """Keeps a second learner out of a directory, where it would spoil what the first has written.

    Held until `release`, or the end of the process.
    """

    def __init__(self, logdir: pathlib.Path):
        """Takes the lock.

        Args:
          logdir: the run's directory, which exists.

        Raises:
          UserError: another learner has it, or the directory cannot be written.
        """
        try:
            self._file = open(logdir / "learner.pid", "a+", encoding="ascii")
        except OSError as error:
            raise UserError(f"Cannot write to --logdir={logdir}: {error.strerror}.") from error
        try:
            locked = try_lock(self._file.fileno())
        except OSError as error:
            logging.warning("%s has no locks (%s): start no second learner.", logdir, error)
            locked = True
        if not locked:
            self._file.seek(0)
            pid = self._file.read().strip()
            self._file.close()
            raise UserError(
                f"A learner is at work in --logdir={logdir} (process {pid}). Stop it, or choose "
                "another directory."
            )
        with contextlib.suppress(OSError):  # A full disk is no reason not to train.
            self._file.truncate(0)
            self._file.write(f"{os.getpid()}\n")
            self._file.flush()

    def release(self) -> None:
        """Lets another learner in."""
        with contextlib.suppress(OSError):  # What a full disk did not take.
            self._file.close()
