"""Starts modules of SEED RL that import nothing from the working directory.

A logdir may have been unpacked there, with modules that have the names of others.
"""

from __future__ import annotations

import contextlib
import os
import sys

import seed_rl

_CODE = """\
import sys
sys.path = [path for path in sys.path if path]
import runpy, signal
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # As `seed_rl` does for `python -m`.
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""


def command(module: str) -> list[str]:
    """As `python -m MODULE`, which would put the working directory first on `sys.path`.

    Unless SEED RL itself is imported from there. (Python's -P exists only from 3.11 on.)
    """
    start = ["-m", module] if is_ours(".") else ["-c", _CODE.format(module=module)]
    return [sys.executable, *start]


def is_ours(directory: str) -> bool:
    """Whether SEED RL is imported from a directory."""
    with contextlib.suppress(OSError):  # The working directory may be gone.
        return os.path.samefile(os.path.dirname(os.path.dirname(seed_rl.__file__)), directory)
    return False
