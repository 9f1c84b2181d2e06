"""A directory on a separate file system that is full, for the programs of a test.

It is a small tmpfs in a private mount namespace: other processes cannot see it, and it is gone when
the program exits.
Needs root, or a kernel that lets users make namespaces (containers: `--cap-add SYS_ADMIN`).
"""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

_SCRIPT = """
set -e
mount -t tmpfs -o size="$2" none "$1"
if [ "$3" = full ]; then dd if=/dev/zero of="$1/filling" bs=4k 2> /dev/null || true; fi
shift 3
exec "$@"
"""


@functools.cache
def namespace() -> tuple[str, ...]:
    """The command that runs another in a private mount namespace."""
    command = ("unshare", "--mount") + (() if os.geteuid() == 0 else ("--map-root-user",))
    if subprocess.run([*command, "true"], capture_output=True).returncode == 0:
        return command
    # A chroot does not permit changing mount propagation; mounts stay in the namespace around it.
    return (*command, "--propagation=unchanged")


def command(
    directory: str | Path, *program: str | Path, size: str = "256k", full: bool = True
) -> list[str]:
    """The command that runs `program` where `directory` (which exists) has no room.

    Args:
      directory: hidden by the small file system.
      *program: and its arguments.
      size: of the file system, as mount takes it.
      full: whether it is full from the start, not just small.
    """
    filling = "full" if full else "empty"
    return [
        *namespace(),
        "sh",
        "-c",
        _SCRIPT,
        "sh",
        str(directory),
        size,
        filling,
        *map(str, program),
    ]
