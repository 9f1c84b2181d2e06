"""Runs TensorBoard without loading TensorFlow, which its scalar pages do not need.

That saves 400 MB and several seconds of CPU time that the learner needs while starting.

A run's summaries are at the top of its logdir, which TensorBoard would name ".". So it gets a
temporary directory with just a link to the logdir, and shows the link's name.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import types
from collections.abc import Iterator, Sequence

from tensorboard import main as tensorboard_main

from seed_rl.common.system.file_lock import spared

_LOGDIR = "--logdir="


@contextlib.contextmanager
def named_run(arguments: Sequence[str]) -> Iterator[list[str]]:
    """The arguments with `--logdir=` replaced by a directory in which the run has a name."""
    with (
        tempfile.TemporaryDirectory(prefix="seed_rl_tensorboard_") as view,
        spared(view),
    ):
        changed = []
        for argument in arguments:
            if argument.startswith(_LOGDIR):
                logdir = os.path.abspath(argument.removeprefix(_LOGDIR))
                os.symlink(logdir, os.path.join(view, os.path.basename(logdir) or "run"))
                argument = _LOGDIR + view
            changed.append(argument)
        yield changed


if __name__ == "__main__":
    # With this module, `tensorboard.compat` uses its own stub of TensorFlow.
    sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")
    with named_run(sys.argv[1:]) as named:
        sys.argv[1:] = named
        tensorboard_main.run_main()
