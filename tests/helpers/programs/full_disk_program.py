"""Runs parts of a learner while the disk is full, and when there is room again.

full_disk_program.py DIRECTORY
"""

import os
import pathlib
import sys

import tensorflow as tf

from seed_rl.common.checkpoints import checkpoints
from seed_rl.common.errors import UserError
from seed_rl.common.monitoring.metrics import SummaryWriter
from seed_rl.common.system import files
from tests.helpers.waiting import wait_until


def fill(path):
    try:
        with open(path, "ab", buffering=0) as file:
            while True:
                file.write(bytes(4096))
    except OSError as error:
        assert files.is_no_room(error)


def main():
    folder = pathlib.Path(sys.argv[1])
    variable = tf.Variable(tf.ones([20000]))
    manager = checkpoints.CheckpointManager(folder / "checkpoints", {"variable": variable})
    assert manager.save(1) is not None and manager.problem is None
    filling = folder / "filling"
    fill(filling)
    os.truncate(filling, filling.stat().st_size - 40_000)  # Half of a checkpoint.
    assert manager.save(2) is None
    fill(filling)
    assert manager.save(2) is None
    assert manager.problem == f"no space left in {folder / 'checkpoints'}", manager.problem
    assert [entry.step for entry in checkpoints.list_checkpoints(folder / "checkpoints")] == [1]
    assert manager.restore_latest() == 1
    assert not list((folder / "checkpoints").glob(".saving-*"))
    try:
        checkpoints.CheckpointManager(folder / "checkpoints", {"variable": variable})
    except UserError as error:
        assert "No space left" in str(error) and "free space" in str(error)
    else:
        raise AssertionError("a run may begin that can save nothing")
    summaries = SummaryWriter(folder / "events")
    summaries.write(1, {"loss": 1.0})
    wait_until(lambda: summaries._warned)
    filling.unlink()
    assert manager.save(3) is not None and manager.problem is None
    summaries.write(2, {"loss": 2.0})
    summaries.close()
    assert [path for path in (folder / "events").iterdir() if path.stat().st_size > 0]
    print("all is well")


if __name__ == "__main__":
    main()
