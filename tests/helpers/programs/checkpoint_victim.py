"""Saves checkpoints until it is killed (a program of test_checkpoints.py).

For each line on stdin it forks a child that saves; the child's id and, after each save, the step
go to stdout. Forking after the import spares every child TensorFlow's start-up.
"""

import os
import sys

import tensorflow as tf

from seed_rl.common.checkpoints.checkpoints import CheckpointManager


def save_for_ever(directory: str, first_step: int) -> None:
    weights = [tf.Variable(tf.zeros([200, 500])) for _ in range(4)]
    step = tf.Variable(0, dtype=tf.int64)
    module = tf.Module()
    module.weights = weights
    manager = CheckpointManager(directory, {"agent": module, "step": step}, keep=2)
    manager.restore_latest()
    number = first_step
    while True:
        number += 1
        step.assign(number)
        for weight in weights:
            weight.assign(tf.fill(weight.shape, float(number)))
        manager.save(number)
        os.write(1, f"saved {number}\n".encode())


def main() -> None:
    directory = sys.argv[1]
    os.write(1, b"ready\n")
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            save_for_ever(directory, int(line))
        os.write(1, f"child {child}\n".encode())
        os.waitpid(child, 0)
        os.write(1, b"dead\n")


if __name__ == "__main__":
    main()
