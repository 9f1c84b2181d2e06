"""SEED RL: scalable reinforcement learning with batched central inference.

Importing the package never imports TensorFlow, so that actors start fast and stay small.
"""

import importlib as _importlib
import signal as _signal
import sys as _sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seed_rl.agent import Agent, Callback, Report, UserError, load, train

__all__ = ["Agent", "Callback", "Report", "UserError", "load", "train"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Imports what is in `__all__` when it is first used: actors need none of it."""
    if name not in __all__:
        raise AttributeError(f"module 'seed_rl' has no attribute {name!r}")
    return getattr(_importlib.import_module("seed_rl.agent"), name)


# While `python -m seed_rl...` imports for a second, Ctrl-C ends it without a traceback. Programs
# set their own handlers once they need a clean shutdown.
if _sys.argv[:1] == ["-m"] and "-m" in getattr(_sys, "orig_argv", ()):
    _program = _sys.orig_argv[_sys.orig_argv.index("-m") + 1]
    _raises = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
    if _program.startswith("seed_rl.") and _raises:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
