"""The network of the on-policy agent: each choice changes what it should, and nothing else."""

import gin
import numpy as np
import pytest
import tensorflow as tf

from seed_rl.agents.policy_gradient.modules import gin_tf
from seed_rl.agents.policy_gradient.modules.continuous_control_agent import (
    ContinuousControlAgent,
    swish,
)
from seed_rl.common.distributions.continuous import (
    deterministic_tanh_distribution,
    normal_tanh_distribution,
    softplus_std_fn,
)
from seed_rl.common.distributions.discrete import categorical_distribution
from seed_rl.common.errors import UserError
from seed_rl.common.normalization.input_normalization import InputNormalization
from seed_rl.common.normalization.running_statistics import AverageMeanStd
from tests.helpers import network_inputs
from tests.helpers.network_inputs import assert_unroll_equals_steps

NUM_ACTIONS = 3
SMALL = {"num_units_policy": 8, "num_units_value": 6, "num_units_rnn": 5}
STD_FN = softplus_std_fn(std_for_zero_param=0.5, min_std=1e-3)


def normal():
    return normal_tanh_distribution(NUM_ACTIONS, STD_FN)


def make(distribution=None, **kwargs):
    tf.keras.utils.set_random_seed(0)
    return ContinuousControlAgent(distribution or normal(), **{**SMALL, **kwargs})


def env_outputs(leading, observation=None, p_done=0.0, seed=0):
    if observation is None:
        observation = np.random.default_rng(seed).normal(size=[*leading, 4])
    observation = tf.nest.map_structure(lambda x: tf.constant(x, tf.float32), observation)
    return network_inputs.env_outputs(tuple(leading), observation, p_done, seed)


def run(agent, outputs, state=None, unroll=False):
    state = agent.initial_state(outputs.reward.shape[-1]) if state is None else state
    return agent((None, outputs), state, unroll=unroll)


def kernels(agent):
    return [v for v in agent.trainable_variables if v.name.rpartition("/")[2].startswith("kernel")]


@pytest.mark.parametrize("num_layers_rnn", [0, 2])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("discrete", [False, True])
def test_an_unroll_equals_its_steps(discrete, shared, num_layers_rnn):
    """Shapes of both forms, and that inference and training see the same state, resets included."""
    distribution = categorical_distribution(5, tf.int32) if discrete else normal()
    agent = make(distribution, shared=shared, num_layers_rnn=num_layers_rnn)
    outputs = env_outputs([6, 3], p_done=0.3)
    unrolled = assert_unroll_equals_steps(agent, (), outputs)
    assert unrolled.policy_logits.shape == [6, 3, 5 if discrete else 2 * NUM_ACTIONS]
    assert unrolled.baseline.shape == [6, 3]
    assert unrolled.action.shape == ([6, 3] if discrete else [6, 3, NUM_ACTIONS])
    assert bool(tf.nest.flatten(agent.initial_state(3))) == bool(num_layers_rnn)


def test_done_resets_the_state():
    agent = make(num_layers_rnn=1)
    outputs = env_outputs([2])
    fresh, _ = run(agent, outputs)
    used = tf.nest.map_structure(tf.ones_like, agent.initial_state(2))
    after_reset, _ = run(agent, outputs._replace(done=tf.constant([True, False])), used)
    np.testing.assert_allclose(after_reset.policy_logits[0], fresh.policy_logits[0], atol=1e-6)
    np.testing.assert_allclose(after_reset.baseline[0], fresh.baseline[0], atol=1e-6)
    assert np.abs(after_reset.policy_logits[1] - fresh.policy_logits[1]).max() > 1e-3


@pytest.mark.parametrize("shared", [False, True])
def test_shared_and_separate_torsos(shared):
    """The value loss reaches the policy's layers only if they are shared."""
    agent = make(shared=shared, num_layers_policy=2, num_layers_value=1)
    outputs = env_outputs([5])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(run(agent, outputs)[0].baseline)
    assert [tuple(v.shape) for v in kernels(agent)].count((4, 8)) == 1
    assert len(kernels(agent)) == (4 if shared else 5)
    policy = [v for v in kernels(agent) if tuple(v.shape) in [(4, 8), (8, 8)]]
    gradients = tape.gradient(loss, policy)
    assert len(policy) == 2 and all((g is not None) == shared for g in gradients)


def test_std_independent_of_input():
    """All observations have the same, learned standard deviations; the means still differ."""
    agent = make(std_independent_of_input=True)
    outputs = env_outputs([7])
    with tf.GradientTape() as tape:
        logits = run(agent, outputs)[0].policy_logits
        loss = tf.reduce_sum(logits[:, NUM_ACTIONS:])
    np.testing.assert_array_equal(logits[:, NUM_ACTIONS:], np.zeros([7, NUM_ACTIONS]))
    np.testing.assert_allclose(normal()(logits).scale, np.full([7, NUM_ACTIONS], 0.5), rtol=1e-5)
    assert np.std(logits[:, :NUM_ACTIONS], axis=0).min() > 0
    variables = agent.trainable_variables
    gradients = tape.gradient(loss, variables)
    nonzero = [
        (v.shape, g.numpy())
        for v, g in zip(variables, gradients, strict=True)
        if g is not None and np.any(g)
    ]
    assert len(nonzero) == 1 and nonzero[0][0] == [2 * NUM_ACTIONS]
    np.testing.assert_array_equal(nonzero[0][1], [0] * NUM_ACTIONS + [7] * NUM_ACTIONS)


@pytest.mark.parametrize(
    "distribution", [categorical_distribution(4, tf.int32), deterministic_tanh_distribution(2)]
)
def test_actions_without_std_have_none_to_learn(distribution):
    with pytest.raises(UserError, match="std_independent_of_input"):
        make(distribution, std_independent_of_input=True)


def test_initializers_and_scaling_of_the_heads():
    """The same seed with another scaling: the heads' weights are scaled, the rest is as before."""
    outputs = env_outputs([4])
    init = tf.keras.initializers.Orthogonal(seed=3)
    plain = make(kernel_init=init)
    scaled = make(
        kernel_init=init, last_kernel_init_policy_scaling=0.01, last_kernel_init_value_scaling=10.0
    )
    expected, actual = (run(agent, outputs)[0] for agent in (plain, scaled))
    np.testing.assert_allclose(actual.policy_logits, 0.01 * expected.policy_logits, atol=1e-6)
    np.testing.assert_allclose(actual.baseline, 10 * expected.baseline, atol=1e-5)

    zeros = make(last_kernel_init_policy="zeros", last_kernel_init_value="ones")
    output, _ = run(zeros, outputs)
    np.testing.assert_array_equal(output.policy_logits, np.zeros([4, 2 * NUM_ACTIONS]))
    assert np.any(output.baseline)


def test_the_first_policy_is_the_configured_one():
    """A small last layer: means near 0 and the standard deviation for zero parameters."""
    agent = make(last_kernel_init_policy_scaling=0.01)
    distribution = normal()(run(agent, env_outputs([50]))[0].policy_logits)
    assert np.abs(distribution.loc).max() < 0.05
    np.testing.assert_allclose(distribution.scale, np.full([50, NUM_ACTIONS], 0.5), atol=0.02)


def test_one_initializer_draws_different_weights_for_each_layer():
    """Guards against Keras initializers, which return the same numbers each time."""
    init = tf.keras.initializers.Orthogonal()
    agent = make(kernel_init=init, num_units_value=8)
    run(agent, env_outputs([1]))
    square = [v.numpy() for v in kernels(agent) if v.shape == [8, 8]]
    assert len(square) == 4 and len(np.unique([np.round(k[0, 0], 6) for k in square])) == 4
    np.testing.assert_allclose(square[0] @ square[0].T, np.eye(8), atol=1e-5)


def test_against_numpy():
    """Normalization of layers, activation, residual connections and clipping, by hand."""
    agent = make(
        num_layers_policy=2,
        shared=True,
        residual_connections=True,
        activation=swish,
        layer_normalizer=tf.keras.layers.LayerNormalization,
        input_clipping=0.5,
    )
    outputs = env_outputs([6])
    actual, _ = run(agent, outputs)
    by_shape = {tuple(v.shape): v.numpy() for v in kernels(agent)}

    def layer(x, kernel):
        y = x @ kernel
        y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-3)
        return y / (1 + np.exp(-y))

    x = layer(np.clip(outputs.observation, -0.5, 0.5), by_shape[4, 8])
    x = x + layer(x, by_shape[8, 8])
    np.testing.assert_allclose(actual.policy_logits, x @ by_shape[8, 2 * NUM_ACTIONS], atol=1e-4)
    np.testing.assert_allclose(actual.baseline, (x @ by_shape[8, 1])[:, 0], atol=1e-4)


@pytest.mark.parametrize("correct", [True, False])
def test_output_after_an_update_of_the_observation_statistics(correct):
    """With corrected observations the network's outputs stay; without, they do not."""
    agent = make(
        observation_normalizer=InputNormalization(AverageMeanStd()), correct_observations=correct
    )
    outputs = env_outputs([9])
    before, _ = run(agent, outputs)
    data = 3.0 + 5.0 * np.random.default_rng(1).normal(size=[20, 3, 4])
    agent.update_observation_normalization_statistics(tf.constant(data, tf.float32))
    after, _ = run(agent, outputs)
    same = np.allclose(before.policy_logits, after.policy_logits, atol=1e-4)
    assert same == correct and np.allclose(before.baseline, after.baseline, atol=1e-4) == correct
    mean, std = agent._observation_normalizer.get_mean_std()
    np.testing.assert_allclose(mean, data.mean((0, 1)), rtol=1e-3)
    np.testing.assert_allclose(std, data.std((0, 1)), rtol=0.02)


def test_nests_of_observations():
    """Leaves are joined in the order of the nest; choices count as numbers."""
    agent = make(observation_normalizer=InputNormalization(AverageMeanStd()))
    rng = np.random.default_rng(0)
    nest = {
        "a": rng.normal(size=[5, 2, 3]),
        "b": (rng.normal(size=[5, 2, 2, 2]), rng.normal(size=[5, 2])),
    }
    joined = np.concatenate(
        [nest["a"], nest["b"][0].reshape([5, 2, 4]), nest["b"][1][..., np.newaxis]], axis=-1
    )
    from_nest, _ = run(agent, env_outputs([5, 2], nest), unroll=True)
    from_vector, _ = run(agent, env_outputs([5, 2], joined), unroll=True)
    np.testing.assert_allclose(from_nest.policy_logits, from_vector.policy_logits, atol=1e-6)
    run(agent, env_outputs([5, 2], nest), unroll=True)
    agent.update_observation_normalization_statistics(env_outputs([5, 2], nest).observation)
    mean, _ = agent._observation_normalizer.get_mean_std()
    np.testing.assert_allclose(mean, joined.mean((0, 1)), atol=1e-5)


def test_correction_needs_a_normalizer():
    with pytest.raises(UserError, match="observation_normalizer"):
        make(correct_observations=True)


def test_gin_configures_every_argument():
    gin.parse_config(
        """
        ContinuousControlAgent.num_layers_policy = 1
        ContinuousControlAgent.num_layers_value = 2
        ContinuousControlAgent.num_layers_rnn = 1
        ContinuousControlAgent.num_units_policy = 7
        ContinuousControlAgent.num_units_value = 9
        ContinuousControlAgent.num_units_rnn = 11
        ContinuousControlAgent.layer_normalizer = @tf.keras.layers.LayerNormalization
        ContinuousControlAgent.shared = False
        ContinuousControlAgent.residual_connections = True
        ContinuousControlAgent.activation = @tf.nn.relu
        ContinuousControlAgent.kernel_init = @tf.keras.initializers.Orthogonal()
        tf.keras.initializers.Orthogonal.gain = 1.5
        ContinuousControlAgent.last_kernel_init_value = 'lecun_normal'
        ContinuousControlAgent.last_kernel_init_value_scaling = 0.5
        ContinuousControlAgent.last_kernel_init_policy = 'zeros'
        ContinuousControlAgent.last_kernel_init_policy_scaling = 0.1
        ContinuousControlAgent.correct_observations = False
        ContinuousControlAgent.std_independent_of_input = True
        ContinuousControlAgent.input_clipping = 10.0
        """
    )
    agent = ContinuousControlAgent(normal())
    output, _ = run(agent, env_outputs([2]))
    np.testing.assert_array_equal(output.policy_logits, np.zeros([2, 2 * NUM_ACTIONS]))
    shapes = {tuple(v.shape) for v in kernels(agent)}
    assert {(4, 7), (4, 9), (9, 9), (11, NUM_ACTIONS), (11, 1)} <= shapes
    (square,) = (v.numpy() for v in kernels(agent) if v.shape == [9, 9])
    np.testing.assert_allclose(square @ square.T, 1.5**2 * np.eye(9), atol=1e-4)


def test_names_of_keras_in_gin():
    """Registered once, however often it is asked for; optimizers take their bindings."""
    gin_tf.register()

    @gin.configurable(module="test_names_of_keras_in_gin")
    def chosen(optimizer, schedule, functions):
        return optimizer(schedule), functions

    gin.parse_config(
        """
        chosen.optimizer = @tf.keras.optimizers.Adam
        tf.keras.optimizers.Adam.epsilon = 1e-5
        chosen.schedule = @tf.keras.optimizers.schedules.PolynomialDecay()
        tf.keras.optimizers.schedules.PolynomialDecay.initial_learning_rate = 3e-4
        tf.keras.optimizers.schedules.PolynomialDecay.decay_steps = 100
        chosen.functions = [@tf.nn.tanh, @tf.tanh, @swish]
        """
    )
    optimizer, functions = chosen()
    assert isinstance(optimizer, tf.keras.optimizers.Adam) and optimizer.epsilon == 1e-5
    np.testing.assert_allclose(optimizer.learning_rate, 3e-4, rtol=1e-6)
    x = tf.constant([-1.0, 2.0])
    for function, expected in zip(
        functions, [np.tanh(x), np.tanh(x), x / (1 + np.exp(-x))], strict=True
    ):
        np.testing.assert_allclose(function(x), expected, rtol=1e-5)
