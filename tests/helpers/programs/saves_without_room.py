"""Saves checkpoints to a directory that has room for one.

saves_without_room.py DIRECTORY
"""

import os
import sys

import tensorflow as tf

from seed_rl.common.checkpoints.checkpoints import CheckpointManager, list_checkpoints


def main():
    directory = sys.argv[1]
    variable = tf.Variable(tf.zeros([300_000]))
    manager = CheckpointManager(directory, {"agent": variable})
    saved = [manager.save(step) is not None for step in range(4)]
    assert saved == [True, False, False, False], saved
    assert [entry.step for entry in list_checkpoints(directory)] == [0]
    assert manager.restore_latest() == 0
    assert len(os.listdir(directory)) == 1
    print("survived")


if __name__ == "__main__":
    main()
