"""The default --logdir.

It is below the working directory, as in /tmp another user could have planted files, and named after
the program and its environment, so that different runs do not share one.
"""

from __future__ import annotations

import re

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
