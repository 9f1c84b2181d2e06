"""The default --logdir.

It is below the working directory, because in /tmp another user could have planted files, and named
after the program and its environment, so that different runs do not share it. `check` finds
directories that others have planted in a working directory that everyone can write to.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from seed_rl.common.errors import UserError
from seed_rl.common.system import running_program

_LONGEST = 100  # Characters of the environment's name; file systems allow 255 bytes.


def default(environment: str | None = None) -> str:
    """`runs/PROGRAM-ENVIRONMENT`, for instance `runs/atari-vtrace-Pong`.

    Args:
      environment: its name, in any characters; None if the program has only one.
    """
    program = (running_program.name() or "").removesuffix(".__main__")
    if program.startswith("seed_rl."):
        name = "-".join(program.split(".")[1:]).removesuffix("_main")
    else:
        name = running_program.stem(program)
    parts = [name or "run", (environment or "")[:_LONGEST]]
    return "runs/" + "-".join(re.sub(r"[^\w.-]+", "_", p).strip("_.-") for p in parts if p)


def check(logdir: str | os.PathLike[str]) -> None:
    """Refuses what may not become a logdir.

    Names that are not UTF-8, which TensorFlow cannot use, and a directory that another user has
    prepared below the working directory. In a folder that everyone can write to, anyone can create
    `runs` before us. Absolute paths are the user's own choice.

    Raises:
      UserError: the name is not UTF-8, or a part of `logdir` is in such a folder and belongs to
        another user.
    """
    try:
        os.fspath(logdir).encode()
    except UnicodeEncodeError:
        raise UserError(f"--logdir={os.fspath(logdir)!r} is not UTF-8; choose another.") from None
    if os.path.isabs(logdir) or "://" in str(logdir):
        return
    parent = Path.cwd()
    for part in Path(logdir).parts:
        path = parent / part
        try:
            # Not where a link leads: the user who made the link chose that.
            owner, open_to_all = path.lstat().st_uid, parent.stat().st_mode & stat.S_IWOTH
        except FileNotFoundError:
            return
        if open_to_all and owner not in (0, os.geteuid()):
            raise UserError(
                f"{path} belongs to another user, who may have planted it: everyone can write to "
                f"{parent}. Start in a folder of your own, or choose a --logdir in one."
            )
        parent = path
