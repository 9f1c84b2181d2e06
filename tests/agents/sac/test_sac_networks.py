"""The networks of SAC: shapes, time, critics as one product, goals."""

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from seed_rl.agents.sac import networks
from seed_rl.agents.sac.config import SACNetworkConfig
from seed_rl.common.distributions.spaces import get_parametric_distribution_for_action_space
from seed_rl.common.errors import UserError
from seed_rl.common.learner import variables
from seed_rl.common.networks.mlp import MLP
from tests.helpers.network_inputs import env_outputs

T, B, N = 6, 3, 2
DISTRIBUTION = get_parametric_distribution_for_action_space(spaces.Box(-1, 1, (N,), np.float32))
GOALS = ("observation", "achieved_goal", "desired_goal")


def lstm(**options):
    return networks.ActorCriticLSTM(DISTRIBUTION, 2, (4,), (5,), (6,), (7,), **options)


def inputs(observation):
    rng = np.random.default_rng(0)
    actions = tf.constant(rng.uniform(-1, 1, (T, B, N)), tf.float32)
    return actions, tuple(env_outputs((T, B), observation))  # A plain tuple.


def vectors(seed=0):
    return tf.constant(np.random.default_rng(seed).normal(size=(T, B, 3)), tf.float32)


@pytest.mark.parametrize("make", [lambda: networks.ActorCriticMLP(DISTRIBUTION, 3, (8,)), lstm])
def test_shapes(make):
    network = make()
    actions, outputs = inputs(vectors())
    state = network.initial_state(B)
    critics = 3 if isinstance(network, networks.ActorCriticMLP) else 2
    assert network.get_Q(actions, outputs, state, actions).shape == (T, B, critics)
    if isinstance(network, networks.ActorCriticLSTM):
        quantiles = lstm(n_quantiles=5).get_Q(actions, outputs, state, actions)
        assert quantiles.shape == (T, B, 2, 5)
    assert network.get_V(actions, outputs, state).shape == (T, B)
    assert network.get_action_params(actions, outputs, state).shape == (T, B, 2 * N)
    output, _ = network.get_action(actions, outputs, state, unroll=True)
    assert output.action.shape == (T, B, N)


def test_recurrent_unroll_equals_step_by_step():
    """Guards the states of all three parts, and their reset where an episode begins."""
    network = lstm()
    actions, outputs = inputs(vectors())
    state = network.initial_state(B)
    unrolled, last = network(actions, outputs, state, unroll=True)
    values = network.get_V(actions, outputs, state)
    q = network.get_Q(actions, outputs, state, actions)
    for t in range(T):
        now = tf.nest.map_structure(lambda x, t=t: x[t : t + 1], (actions, outputs))
        step = tf.nest.map_structure(lambda x: x[0], now)
        # As if each environment that is done had just been created.
        fresh = tf.nest.map_structure(tf.zeros_like, state)
        done = outputs[1][t][:, tf.newaxis]
        state = tf.nest.map_structure(lambda a, b, d=done: tf.where(d, a, b), fresh, state)
        np.testing.assert_allclose(network.get_V(*now, state)[0], values[t], atol=1e-5)
        np.testing.assert_allclose(network.get_Q(*now, state, now[0])[0], q[t], atol=1e-5)
        output, state = network(*step, state)
        np.testing.assert_allclose(output.policy_logits, unrolled.policy_logits[t], atol=1e-5)
    for a, b in zip(tf.nest.flatten(state), tf.nest.flatten(last), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_critics_in_one_product_are_separate_networks():
    """Guards the batched product and the order of the values, the quantiles of each critic."""
    network = networks.ActorCriticMLP(DISTRIBUTION, 3, (8, 8), n_quantiles=2)
    actions, outputs = inputs(vectors())
    values = network.get_Q(actions, outputs, network.initial_state(B), actions)
    layers = network._q[0].mlp._layers
    x = np.concatenate([outputs[2], actions], -1)
    for critic in range(3):
        h = x
        for i, layer in enumerate(layers):
            h = h @ layer.kernel[critic].numpy() + layer.bias[critic].numpy()
            h = np.maximum(h, 0) if i < 2 else h
        np.testing.assert_allclose(values[..., critic, :], h, rtol=1e-4, atol=1e-5)
    assert not np.allclose(values[..., 0, :], values[..., 1, :])


@pytest.mark.parametrize("copies", [None, 2])
def test_kernels_are_small(copies):
    """Guards the speed of learning on MuJoCo, which He's larger kernels lower."""
    tf.keras.utils.set_random_seed(1)
    mlp = MLP((200, 100), copies=copies)
    mlp(tf.zeros([1, 50]))
    for layer, variance in zip(mlp._layers, (2 / 250, 2 / 300), strict=True):
        assert layer.kernel.numpy().var() == pytest.approx(variance, rel=0.05)


def test_another_goal_changes_values_but_not_recurrent_states():
    """Guards hindsight replay, which uses stored states with other goals."""
    network = lstm()
    observation = {key: vectors(i) for i, key in enumerate(GOALS)}
    state = network.initial_state(B)
    (actions, outputs), other = inputs(observation), {**observation, GOALS[2]: vectors(9)}
    changed = (*outputs[:2], other, *outputs[3:])
    states = [network(actions, o, state, unroll=True)[1] for o in (outputs, changed)]
    for a, b in zip(*map(tf.nest.flatten, states), strict=True):
        np.testing.assert_array_equal(a, b)
    values = [network.get_V(actions, o, state) for o in (outputs, changed)]
    assert not np.allclose(*values)


@pytest.mark.parametrize("make", [lambda: networks.ActorCriticMLP(DISTRIBUTION, 2, (64,)), lstm])
def test_the_first_policy_explores_evenly(make):
    """Guards the warm-up of the replay, whose only exploration is this policy."""
    tf.keras.utils.set_random_seed(1)
    network = make()
    actions, outputs = inputs(10 * vectors())
    params = network.get_action_params(actions, outputs, network.initial_state(B))
    samples = np.stack([DISTRIBUTION.sample(params) for _ in range(100)])
    counts, _ = np.histogram(samples, bins=4, range=(-1, 1))
    assert counts.min() > 0.15 * samples.size


def test_create_mlp():
    mlp = networks.create_mlp([4, 2], "relu", "tanh")
    outputs = mlp(tf.constant(100 * np.random.default_rng(0).normal(size=(9, 3)), tf.float32))
    assert outputs.shape == (9, 2) and np.abs(outputs).max() <= 1.0
    assert len(variables.trainable_variables(mlp)) == 4


@pytest.mark.parametrize("lstm_sizes", [(), (4,)])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_the_activation_is_that_of_the_options(lstm_sizes, activation):
    """tanh bounds what a layer passes on, ReLU does not."""
    config = SACNetworkConfig((8,), activation, lstm_sizes=lstm_sizes)
    space = spaces.Box(-1, 1, vectors().shape[-1:], np.float32)
    network = networks.create_network(space, DISTRIBUTION, config)
    state = network.initial_state(B)
    small, large = (network.get_V(*inputs(x * vectors()), state) for x in (1e5, 1e7))
    assert np.allclose(small, large, rtol=1e-3) == (activation == "tanh")


def test_create_network():
    """Guards the choice of the form, and that images are refused instead of flattened."""
    space = spaces.Box(-1, 1, (3,), np.float32)
    create = networks.create_network
    assert isinstance(create(space, DISTRIBUTION), networks.ActorCriticMLP)
    recurrent = SACNetworkConfig(lstm_sizes=(4,))
    assert isinstance(create(space, DISTRIBUTION, recurrent), networks.ActorCriticLSTM)
    with pytest.raises(UserError, match="images"):
        create(spaces.Box(0, 255, (84, 84, 1), np.uint8), DISTRIBUTION)
