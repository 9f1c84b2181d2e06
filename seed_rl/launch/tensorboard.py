"""Runs TensorBoard without loading TensorFlow, which its pages for training do not need.

That saves 400 MB and several seconds of a core which the learner needs at that very moment.

A run has its summaries at the top of its logdir, which TensorBoard would show as the run ".". So it
gets a directory with nothing but a link to the logdir in it, whose name the run has.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import types
from collections.abc import Iterator, Sequence

from tensorboard import main as tensorboard_main

_LOGDIR = "--logdir="


@contextlib.contextmanager
def named_run(arguments: Sequence[str]) -> Iterator[list[str]]:
    """The same arguments, with `--logdir=` leading to a directory in which the run has a name."""
    with tempfile.TemporaryDirectory(prefix="seed_rl_tensorboard_") as view:
        changed = []
        for argument in arguments:
            if argument.startswith(_LOGDIR):
                logdir = os.path.abspath(argument.removeprefix(_LOGDIR))
                os.symlink(logdir, os.path.join(view, os.path.basename(logdir) or "run"))
                argument = _LOGDIR + view
            changed.append(argument)
        yield changed


if __name__ == "__main__":
    # What `tensorboard.compat` looks for to choose its own stub of TensorFlow.
    sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")
    with named_run(sys.argv[1:]) as named:
        sys.argv[1:] = named
        tensorboard_main.run_main()
