"""R2D2's networks: dueling heads, inputs, one step at a time or all at once."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from seed_rl.agents.r2d2.config import QNetworkConfig
from seed_rl.agents.r2d2.networks import create_network
from tests.helpers import network_inputs
from tests.helpers.network_inputs import assert_unroll_equals_steps

SPACES = {
    "image": spaces.Box(0, 255, (36, 40, 1), np.uint8),
    "vector": spaces.Box(-np.inf, np.inf, (5,), np.float32),
    "nest": spaces.Dict(
        {
            "grid": spaces.Box(0, 255, (3, 3), np.uint8),
            "pair": spaces.Tuple([spaces.Box(0, 1, (2,), np.float32), spaces.MultiBinary(2)]),
        }
    ),
}
CONFIG = QNetworkConfig(lstm_size=8, head_size=8, mlp_sizes=(8,), stack_size=3)
NUM_ACTIONS = 3
random_steps = functools.partial(network_inputs.random_steps, num_actions=NUM_ACTIONS)


@pytest.mark.parametrize("name", SPACES)
def test_an_unroll_equals_its_steps(name):
    """Guards state, frame stack and resets across steps, for observations of every kind."""
    network = create_network(SPACES[name], NUM_ACTIONS, CONFIG)
    steps = random_steps(SPACES[name], 7, 2)
    whole = assert_unroll_equals_steps(network, *steps)
    np.testing.assert_array_equal(whole.action, np.argmax(whole.q_values, axis=-1))
    assert whole.q_values.shape == [7, 2, NUM_ACTIONS] and whole.q_values.dtype == tf.float32


def test_previous_action_and_reward_are_inputs():
    space = SPACES["vector"]
    network = create_network(space, NUM_ACTIONS, CONFIG)
    actions, env_outputs = random_steps(space, 1, 1)
    state = network.initial_state(1)

    def q_values(action=0, reward=0.0):
        outputs = env_outputs._replace(reward=tf.constant([[reward]]))
        return network(tf.constant([[action]]), outputs, state, unroll=True)[0].q_values.numpy()

    assert np.abs(q_values(action=1) - q_values(action=2)).max() > 0
    assert np.abs(q_values(reward=1.0) - q_values(reward=0.0)).max() > 0


def test_advantages_have_mean_zero():
    """Guards the dueling form Q = V + A - mean A: adding to all advantages changes nothing."""
    space = SPACES["vector"]
    network = create_network(space, NUM_ACTIONS, CONFIG)
    actions, env_outputs = random_steps(space, 2, 2)
    state = network.initial_state(2)
    before = network(actions, env_outputs, state, unroll=True)[0].q_values.numpy()
    bias = next(v for v in network.trainable_variables if v.name == "advantage/bias:0")
    bias.assign_add([10.0] * NUM_ACTIONS)
    after = network(actions, env_outputs, state, unroll=True)[0].q_values.numpy()
    np.testing.assert_allclose(after, before, atol=1e-4)
    bias.assign_add([3.0, 0.0, 0.0])
    shifted = network(actions, env_outputs, state, unroll=True)[0].q_values.numpy()
    np.testing.assert_allclose(
        shifted - after, np.broadcast_to([2, -1, -1], after.shape), atol=1e-4
    )


def test_large_rewards_do_not_saturate_the_lstm():
    network = create_network(SPACES["vector"], 3, CONFIG)
    actions, env_outputs = random_steps(SPACES["vector"], 1, 1)

    def q_values(reward):
        outputs = env_outputs._replace(reward=tf.constant([[reward]]))
        return network(actions, outputs, network.initial_state(1), unroll=True)[0].q_values.numpy()

    assert np.abs(q_values(1.0) - q_values(0.0)).max() > 0
    np.testing.assert_allclose(q_values(20.0), q_values(30.0), rtol=1e-6)
