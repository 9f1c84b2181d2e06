"""SEED RL: scalable reinforcement learning with batched central inference.

Importing the package never imports TensorFlow, so that actors start fast and stay small.
"""

import signal as _signal
import sys as _sys

__version__ = "0.1.0"

# While `python -m seed_rl...` imports for a second, Ctrl-C ends it without a traceback. Programs
# set their own handlers once they need a clean shutdown.
if _sys.argv[:1] == ["-m"] and "-m" in _sys.orig_argv:
    _program = _sys.orig_argv[_sys.orig_argv.index("-m") + 1]
    _raises = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
    if _program.startswith("seed_rl.") and _raises:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
