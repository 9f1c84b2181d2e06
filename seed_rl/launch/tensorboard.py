"""Runs TensorBoard without loading TensorFlow, which its pages for training do not need.

That saves 400 MB and several seconds of a core which the learner needs at that very moment.
"""

from __future__ import annotations

import sys
import types

from tensorboard import main as tensorboard_main

if __name__ == "__main__":
    # What `tensorboard.compat` looks for to choose its own stub of TensorFlow.
    sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")
    tensorboard_main.run_main()
