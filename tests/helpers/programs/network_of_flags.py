"""Creates the network as the learner does, from command-line flags, and describes it.

network_of_flags.py MODULE OBSERVATION_SPACE [flags of the module]

It prints the sizes of the LSTM's layers as JSON.
"""

import dataclasses
import json
import runpy
import sys

import numpy as np
from gymnasium import spaces

from seed_rl.common.inference.inference import initialize
from seed_rl.common.learner.job import TrainingJob
from seed_rl.gym import env

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (40, 40, 1), np.uint8)
SPACES = {"vector": VECTOR, "image": IMAGE, "both": spaces.Dict(image=IMAGE, rest=VECTOR)}


class Env:
    action_space = spaces.Discrete(2)

    def __init__(self, space):
        self.observation_space = space

    def reset(self, **_):
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}

    def close(self):
        pass


def show(job):
    network = job.algorithm.network
    initialize(job.algorithm, network, job.specs)
    print(json.dumps([layer[0].shape[-1] for layer in network.initial_state(1).core_state]))


def main():
    _, module, space, *flags = sys.argv
    env.FAMILY = dataclasses.replace(env.FAMILY, create=lambda task, config: Env(SPACES[space]))
    sys.argv = [module, "--run_mode=learner", *flags]
    TrainingJob.train = show
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
