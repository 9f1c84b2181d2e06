"""The network for packed minimaps: shapes, types and the same result for steps and unrolls."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.distributions.discrete import categorical_distribution
from seed_rl.common.types import EnvOutput
from seed_rl.football.networks import GFootball
from seed_rl.football.observation import pack
from tests.helpers import network_inputs
from tests.helpers.network_inputs import assert_unroll_equals_steps

ACTIONS = 19
SIZE = (18, 24)


def random_planes(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).choice(np.array([0, 255], np.uint8), shape)


def env_outputs(*leading: int, size: tuple[int, int] = SIZE) -> EnvOutput:
    observation = pack(random_planes(*leading, *size, 16))
    return network_inputs.env_outputs(leading, observation)


def network(torso: str = "gfootball") -> GFootball:
    tf.random.set_seed(0)
    return GFootball(categorical_distribution(ACTIONS, tf.int64), torso)


@pytest.mark.parametrize("torso", ["gfootball", "impala_shallow"])
def test_steps_and_unrolls_give_the_same(torso: str) -> None:
    """Training must compute what acted; the network has no state."""
    agent = network(torso)
    unroll = env_outputs(3, 2, size=(36, 48))
    assert tf.nest.flatten(agent.initial_state(2)) == []
    actions = tf.zeros([3, 2], tf.int64)
    output = assert_unroll_equals_steps(agent, actions, unroll)
    assert output.policy_logits.shape == (3, 2, ACTIONS) and output.baseline.shape == (3, 2)
    assert output.policy_logits.dtype == output.baseline.dtype == tf.float32
    assert output.action.shape == (3, 2) and output.action.dtype == tf.int64


def test_the_network_is_the_one_of_the_paper() -> None:
    """Four sections of 16, 32, 32 and 32 channels with five convolutions each, 256 units."""
    agent = network()
    agent(tf.zeros([1], tf.int64), env_outputs(1), agent.initial_state(1))
    kernels = [v.shape.as_list() for v in agent.trainable_variables if v.shape.rank > 1]
    convolutions = [shape for shape in kernels if len(shape) == 4]
    assert len(convolutions) == 20 and all(shape[:2] == [3, 3] for shape in convolutions)
    channels = [(16, 16)] * 5 + [(16, 32)] + [(32, 32)] * 14
    assert sorted((i, o) for _, _, i, o in convolutions) == sorted(channels)
    # Four poolings halve 18 x 24 to 2 x 2.
    assert sorted(s for s in kernels if len(s) == 2) == [[128, 256], [256, 1], [256, ACTIONS]]


def test_planes_are_ones_and_zeros_to_the_network() -> None:
    """Guards the scale: 255 counts as 1."""
    agent = network("impala_shallow")
    outputs = env_outputs(2, size=(36, 48))
    agent(tf.zeros([2], tf.int64), outputs, agent.initial_state(2))
    first = agent.encoder.torso._layers[0]
    planes = random_planes(2, 36, 48, 16)
    expected = tf.nn.relu(tf.nn.conv2d(planes / np.float32(255), first.kernel, 4, "VALID"))
    np.testing.assert_allclose(first(tf.constant(planes)), expected, atol=1e-5)


def test_graphs_know_the_shapes() -> None:
    """Batches of any size in one traced function, as in the learner; and int32 words."""
    agent = network()

    @tf.function(input_signature=[tf.TensorSpec([None, None, *SIZE, 1], tf.int32)])
    def act(observation: tf.Tensor) -> tf.Tensor:
        leading = tf.shape(observation)[:2]
        outputs = EnvOutput(
            tf.zeros(leading),
            tf.zeros(leading, tf.bool),
            observation,
            tf.zeros(leading, tf.bool),
            tf.zeros(leading, tf.int32),
        )
        state = agent.initial_state(leading[1])
        return agent(tf.zeros(leading, tf.int64), outputs, state, unroll=True)[0].policy_logits

    assert act(tf.zeros([2, 3, *SIZE, 1], tf.int32)).shape == (2, 3, ACTIONS)
