"""Runs `mirrored_learner.py` with its files mirrored to a URL."""

import os
import pathlib
import sys

from seed_rl.cluster import mirrored

LEARNER = pathlib.Path(__file__).with_name("mirrored_learner.py")


def command(logdir):
    return [sys.executable, str(LEARNER), str(logdir), "0"]


sys.exit(mirrored.run(command, sys.argv[1], os.environ, lambda logdir: None, 0.1))
