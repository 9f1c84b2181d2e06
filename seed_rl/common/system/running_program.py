"""The name of the program that runs in this process."""

from __future__ import annotations

import os
import sys


def name() -> str | None:
    """The name of the running module or the path of the running script; None if neither."""
    main = sys.modules["__main__"]
    spec, path = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name)
    return os.path.abspath(str(path)) if path else None


def stem(program: str) -> str:
    """The last part of a name from `name()`: `my_main` for a module or script of that name."""
    return os.path.basename(program)[:-3] if program.endswith(".py") else program.rpartition(".")[2]
