"""Writes files atomically, and flushes them to disk."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
# The file may be intact. Not EIO: a bad disk does not recover, so the file is as good as damaged.
_UNREADABLE = (
    *(errno.EACCES, errno.EPERM, errno.ESTALE, errno.ETIMEDOUT),
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM),
)


def expanded(path: str | os.PathLike[str]) -> Path:
    """A path with `~` replaced, which shells leave in --flag=~/path."""
    return Path(os.path.expanduser(path))


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Replaces the file at `path`; readers see the old or the new content.

    Args:
      path: the file; its directory must exist. A link is replaced, not followed.
      content: the new content.

    Raises:
      OSError: it cannot be written; the old file is left intact.
    """
    path = Path(path)
    # A name that nobody can guess, and so nobody has made a link to elsewhere.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    encoded = content if isinstance(content, bytes) else content.encode()
    try:
        with open(temporary, "xb") as file:
            file.write(encoded)
        os.replace(temporary, path)
    except BaseException:  # Ctrl-C, too.
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def open_no_link(path: str | os.PathLike[str], mode: str) -> IO[Any]:
    """Opens a file for writing unless it is a symbolic link, which might point anywhere.

    Raises:
      OSError: it is a link, or cannot be opened.
    """

    def opener(name: str, flags: int) -> int:
        try:
            return os.open(name, flags | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            if error.errno == errno.ELOOP:
                error.strerror = f"{os.path.basename(name)} is a symbolic link"
            raise

    return open(path, mode, encoding=None if "b" in mode else "utf-8", opener=opener)


def is_no_room(error: BaseException) -> bool:
    """Whether an error, including TensorFlow's, means that a disk or the user's quota is full."""
    return _reason(error, _NO_ROOM) is not None


def unreadable(error: BaseException) -> str | None:
    """Why a file cannot be read, if an error, including TensorFlow's, does not mean damage."""
    return _reason(error, _UNREADABLE)


def _reason(error: BaseException, numbers: Collection[int]) -> str | None:
    for number in numbers:
        reason = os.strerror(number)
        if (isinstance(error, OSError) and error.errno == number) or reason in str(error):
            return reason
    return None


def no_room(directory: str | os.PathLike[str]) -> str:
    """The message for a full disk."""
    return f"no space left in {directory}"


def flush_file(path: str | os.PathLike[str]) -> None:
    """Flushes a file's content to disk, so that it survives a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_tree(path: str | os.PathLike[str]) -> None:
    """Flushes a directory and everything in it to disk."""
    for directory, _, names in os.walk(path, topdown=False):
        for name in names:
            flush_file(os.path.join(directory, name))
        flush_directory(directory)


def flush_directory(path: str | os.PathLike[str]) -> None:
    """Flushes a directory's entries to disk, so that new names survive a power failure.

    Does nothing on file systems that do not support it (object stores, mostly).
    """
    try:
        flush_file(path)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
