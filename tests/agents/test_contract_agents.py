"""Contracts of networks and their parts."""

import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box

from seed_rl.agents.r2d2 import networks as r2d2_networks
from seed_rl.agents.sac import networks as sac_networks
from seed_rl.agents.vtrace import networks as vtrace_networks
from seed_rl.atari import networks as atari_networks
from seed_rl.common import utils
from seed_rl.common.config.network_config import ConvNetworkConfig
from seed_rl.common.inference.network_calls import call_network
from seed_rl.common.networks import network_factory
from seed_rl.common.networks.encoders import VectorEncoder
from seed_rl.common.parametric_distribution import categorical_distribution
from seed_rl.dmlab import networks as dmlab_networks
from tests.helpers import network_inputs

NUM_ACTIONS = 3
DISTRIBUTION = categorical_distribution(NUM_ACTIONS, tf.int32)
FRAME, VECTOR, LAB = (84, 84, 1), (5,), (72, 96, 3)
NETWORKS = {
    "ActorCritic": (
        lambda: network_factory.create_network(
            Box(0, 255, FRAME, np.uint8), DISTRIBUTION, ConvNetworkConfig(lstm_sizes=(4,))
        ),
        FRAME,
    ),
    "MLPandLSTM": (lambda: vtrace_networks.MLPandLSTM(DISTRIBUTION, (8,), (4,)), VECTOR),
    "ImpalaDeep": (lambda: dmlab_networks.ImpalaDeep(NUM_ACTIONS), LAB),
    "DuelingLSTM": (
        lambda: r2d2_networks.DuelingLSTM(NUM_ACTIONS, VectorEncoder((8,)), 4, 8),
        VECTOR,
    ),
    "DuelingLSTMDQNNet": (
        lambda: atari_networks.DuelingLSTMDQNNet(NUM_ACTIONS, FRAME, stack_size=4),
        FRAME,
    ),
}


def observations(shape, leading):
    rng = np.random.default_rng(0)
    if len(shape) == 3:
        return tf.constant(rng.integers(0, 256, (*leading, *shape)).astype(np.uint8))
    return tf.constant(rng.normal(size=(*leading, *shape)), tf.float32)


def env_outputs(shape, leading):
    """A plain tuple: reward, done, observation, abandoned, episode step."""
    return tuple(network_inputs.env_outputs(leading, observations(shape, leading)))


@pytest.mark.parametrize("unroll", [False, True], ids=["step", "unroll"])
@pytest.mark.parametrize("name", list(NETWORKS))
def test_every_network_takes_a_plain_tuple(name, unroll):
    """Guards networks that use the field names of `env_outputs`."""
    make, shape = NETWORKS[name]
    network = make()
    leading = (4, 2) if unroll else (2,)
    plain = env_outputs(shape, leading)
    actions = tf.zeros(leading, tf.int32)
    tf.random.set_seed(0)
    results = [
        call_network(network, actions, outputs, network.initial_state(2), unroll)
        for outputs in (utils.EnvOutput(*plain), plain)
    ]
    # The action is drawn anew each time; all after it is not.
    for named, unnamed in zip(*(tf.nest.flatten((r[0][1:], r[1])) for r in results), strict=True):
        np.testing.assert_allclose(unnamed, named, rtol=1e-6)


def test_state_by_the_name_and_form_of_existing_programs():
    """Guards `core_state=`, and () as the state of networks without memory."""
    recurrent, feed_forward = (
        vtrace_networks.MLPandLSTM(DISTRIBUTION, (8,), sizes) for sizes in ((4,), ())
    )
    outputs, actions = env_outputs(VECTOR, (2,)), tf.zeros([2], tf.int32)
    state = recurrent.initial_state(2)
    _, new_state = recurrent(actions, outputs, core_state=state)
    tf.nest.assert_same_structure(new_state, state)
    sac = sac_networks.ActorCriticMLP(DISTRIBUTION, 2, (8,))
    for network in (feed_forward, sac):
        assert network.initial_state(2) == network(actions, outputs, ())[1] == ()


@pytest.mark.parametrize("shape", [(), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("stack_size", [2, 4])
def test_stack_frames(shape, stack_size):
    """Guards any inner shape, newest first, black before a done, and the state between unrolls of
    any length, which is one int32 per pixel.
    """
    rng = np.random.default_rng(0)
    frames = rng.integers(1, 256, (15, 6, *shape, 1)).astype(np.uint8)
    done = rng.random((15, 6)) < 0.3
    expected = network_inputs.queue_stack(frames, done, stack_size)[..., ::-1]
    state = atari_networks.initial_frame_stacking_state(stack_size, 6, (*shape, 1))
    stack = tf.function(atari_networks.stack_frames)
    for part in (slice(0, 1), slice(1, 3), slice(3, 15)):
        assert state.dtype == atari_networks.STACKING_STATE_DTYPE == tf.int32
        assert state.shape == (6, *shape)
        stacked, state = stack(frames[part], state, done[part], stack_size)
        assert stacked.dtype == tf.uint8
        np.testing.assert_array_equal(stacked, expected[part])


def test_no_stacking_has_no_state():
    frames = tf.ones([3, 2, 4, 1], tf.uint8)
    state = atari_networks.initial_frame_stacking_state(1, 2, (4, 1))
    stacked, new_state = atari_networks.stack_frames(frames, state, tf.zeros([3, 2], tf.bool), 1)
    assert state == new_state == ()
    np.testing.assert_array_equal(stacked, frames)


@pytest.mark.parametrize(("shape", "stack_size"), [((2, 1), 5), ((2, 3), 4)])
def test_what_does_not_fit_the_packing_is_refused(shape, stack_size):
    with pytest.raises(ValueError, match="stack_size|one channel"):
        atari_networks.initial_frame_stacking_state(stack_size, 2, shape)
    frames, done = tf.zeros([1, 2, *shape], tf.uint8), tf.zeros([1, 2], tf.bool)
    with pytest.raises(ValueError, match="stack_size|one channel"):
        atari_networks.stack_frames(frames, tf.zeros([2, 2], tf.int32), done, stack_size)
