"""Runs an exported policy without this package.

stranger.py MODEL RESULT.npz
"""

import sys

import numpy as np
import tensorflow as tf


def main():
    model = tf.saved_model.load(sys.argv[1])
    state = model.initial_state(tf.constant(5))
    actions = np.zeros([5], np.int32)
    for step in range(4):
        generator = np.random.default_rng(step)
        env_outputs = {
            "reward": np.full([5], step, np.float32),
            "done": np.zeros([5], bool),
            "observation": {"x": generator.normal(size=[5, 2]).astype(np.float32)},
            "abandoned": np.zeros([5], bool),
            "episode_step": np.full([5], step, np.int32),
        }
        actions, state = model.act(actions, env_outputs, state)
    assert not any(name.startswith("seed_rl") for name in sys.modules)
    np.savez(sys.argv[2], actions=actions, hidden=state[0])


if __name__ == "__main__":
    main()
