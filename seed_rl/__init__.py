"""SEED RL: scalable reinforcement learning with batched central inference.

Importing the package never imports TensorFlow, so that actors start in a moment and stay small.
"""

import signal as _signal
import sys as _sys

__version__ = "0.1.0"

# `python -m seed_rl...` is starting, and will import for a second: Ctrl-C ends it then, without a
# traceback. The programs set handlers of their own when there is something to end in good order.
if _sys.argv[:1] == ["-m"] and "-m" in _sys.orig_argv:
    _program = _sys.orig_argv[_sys.orig_argv.index("-m") + 1]
    _raises = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
    if _program.startswith("seed_rl.") and _raises:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
