"""Actor-critic networks: unrolls equal steps, inputs that must matter do, types are as promised."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from seed_rl.agents.vtrace import losses
from seed_rl.agents.vtrace.config import VTraceConfig
from seed_rl.common.config.network_config import ConvNetworkConfig, MLPNetworkConfig
from seed_rl.common.errors import UserError
from seed_rl.common.networks.actor_critic import MLPandLSTM
from seed_rl.common.networks.network_factory import create_network
from seed_rl.common.parametric_distribution import (
    categorical_distribution,
    get_parametric_distribution_for_action_space,
)
from seed_rl.dmlab.networks import ImpalaDeep
from tests.helpers import network_inputs
from tests.helpers.network_inputs import assert_unroll_equals_steps

ACTIONS = categorical_distribution(4, tf.int64)
random_steps = functools.partial(network_inputs.random_steps, num_actions=4)
NESTED = spaces.Dict(
    camera=spaces.Box(0, 255, (40, 44, 3), np.uint8),
    grid=spaces.Box(0, 255, (4, 4), np.uint8),
    body=spaces.Tuple([spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(5, start=1)]),
    kinds=spaces.MultiDiscrete([2, 3]),
)
IMAGE = spaces.Box(0, 255, (84, 84, 1), np.uint8)
LAB = spaces.Box(0, 255, (72, 96, 3), np.uint8)
VECTOR = spaces.Box(-1, 1, (3,), np.float32)
CONFIGS = ConvNetworkConfig, MLPNetworkConfig


def conv_agent(**options):
    return create_network(IMAGE, ACTIONS, ConvNetworkConfig(**options))


AGENTS = {
    "nature": (conv_agent, IMAGE),
    "nature_lstm": (lambda: conv_agent(lstm_sizes=(16,)), IMAGE),
    "shallow_lstm": (
        lambda: conv_agent(torso="impala_shallow", lstm_sizes=(16,), stack_size=2),
        IMAGE,
    ),
    "deep_lab": (lambda: ImpalaDeep(4), LAB),
    "mlp": (lambda: MLPandLSTM(ACTIONS, [8], []), VECTOR),
    "mlp_lstms": (lambda: MLPandLSTM(ACTIONS, [8], [6, 5]), VECTOR),
    "mlp_nested": (lambda: MLPandLSTM(ACTIONS, [8], [6]), NESTED),
    "space_nested": (
        lambda: create_network(
            NESTED,
            ACTIONS,
            ConvNetworkConfig(stack_size=2),
            MLPNetworkConfig((8,), lstm_sizes=(6,)),
        ),
        NESTED,
    ),
    "space_choice": (lambda: create_network(spaces.Discrete(5), ACTIONS), spaces.Discrete(5)),
}


@pytest.mark.parametrize("name", AGENTS)
def test_an_unroll_equals_its_steps(name):
    tf.random.set_seed(0)
    make, space = AGENTS[name]
    agent = make()
    steps = random_steps(space, 5, 3)
    outputs = assert_unroll_equals_steps(agent, *steps, agent.get_action, tolerance=1e-4)
    assert outputs.policy_logits.shape == (5, 3, 4) and outputs.baseline.shape == (5, 3)
    assert outputs.action.shape == (5, 3) and outputs.action.dtype == tf.int64


@pytest.mark.parametrize("name", AGENTS)
def test_every_variable_is_trained(name):
    """A layer that is cut off from the loss would learn nothing, silently."""
    tf.random.set_seed(0)
    make, space = AGENTS[name]
    agent = make()
    prev_actions, env_outputs = random_steps(space, 4, 3)
    state = agent.initial_state(3)
    behaviour, _ = agent(prev_actions, env_outputs, state, unroll=True)
    config = VTraceConfig()
    with tf.GradientTape() as tape:
        loss, _ = losses.compute_loss(
            config,
            ACTIONS,
            agent,
            state,
            prev_actions,
            env_outputs,
            behaviour,
            losses.create_entropy_cost(config),
        )
    variables = agent.trainable_variables
    assert variables and all(v.dtype == tf.float32 for v in variables)
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        assert gradient is not None and np.any(gradient), variable.name


def test_an_lstm_sees_the_previous_action_and_the_clipped_reward():
    agent = conv_agent(lstm_sizes=(16,))
    _, env_outputs = random_steps(IMAGE, 1, 2)
    env_output = tf.nest.map_structure(lambda t: t[0], env_outputs)

    def baseline(action, reward):
        step = env_output._replace(reward=tf.constant([reward, reward]))
        return agent(tf.constant([action, action]), step, agent.initial_state(2))[0].baseline

    plain = baseline(0, 0.0).numpy()
    assert np.all(baseline(1, 0.0) != plain) and np.all(baseline(0, 0.5) != plain)
    np.testing.assert_array_equal(baseline(0, 1.0), baseline(0, 100.0))


def test_what_lies_before_done_does_not_matter():
    """Frames and recurrent state of an ended episode must not leak into the next."""
    agent = conv_agent(lstm_sizes=(16,))
    prev_actions, env_outputs = random_steps(IMAGE, 4, 2)
    done = tf.constant([[False, False], [True, True], [False, False], [False, False]])
    env_outputs = env_outputs._replace(done=done)
    other = tf.concat([255 - env_outputs.observation[:1], env_outputs.observation[1:]], axis=0)
    state = agent.initial_state(2)
    ours, _ = agent(prev_actions, env_outputs, state, unroll=True)
    theirs, _ = agent(prev_actions, env_outputs._replace(observation=other), state, unroll=True)
    assert np.all(ours.baseline[0] != theirs.baseline[0])
    np.testing.assert_array_equal(ours.baseline[1:], theirs.baseline[1:])


@pytest.mark.parametrize("torso, lstm_sizes", [("nature", ()), ("impala_deep", (16,))])
def test_bfloat16_is_close_to_float32_and_keeps_float32_outside(torso, lstm_sizes):
    tf.random.set_seed(0)
    exact, half = (
        conv_agent(torso=torso, lstm_sizes=lstm_sizes, compute_dtype=dtype)
        for dtype in ("float32", "bfloat16")
    )
    prev_actions, env_outputs = random_steps(IMAGE, 2, 3)
    expected, _ = exact(prev_actions, env_outputs, exact.initial_state(3), unroll=True)
    half(prev_actions, env_outputs, half.initial_state(3), unroll=True)
    for ours, theirs in zip(half.variables, exact.variables, strict=True):
        ours.assign(theirs)
    outputs, state = half(prev_actions, env_outputs, half.initial_state(3), unroll=True)
    assert outputs.policy_logits.dtype == outputs.baseline.dtype == tf.float32
    tf.nest.assert_same_structure(state, half.initial_state(3))
    spread = np.abs(expected.baseline).max()
    np.testing.assert_allclose(outputs.baseline, expected.baseline, atol=0.1 * spread)


@pytest.mark.parametrize("space", [IMAGE, VECTOR, NESTED], ids=["image", "vector", "nest"])
@pytest.mark.parametrize("config", CONFIGS)
def test_either_config_makes_the_lstm(space, config):
    """Guards callers of the library from a network without the memory that they asked for."""
    configs = {cls: cls(lstm_sizes=(6, 5) if cls is config else (0,)) for cls in CONFIGS}
    network = create_network(space, ACTIONS, *configs.values())
    state = network.initial_state(2).core_state
    assert [layer.hidden.shape for layer in state] == [(2, 6), (2, 5)]


def test_two_different_lstms_are_refused():
    configs = ConvNetworkConfig(lstm_sizes=(6,)), MLPNetworkConfig(lstm_sizes=(5,))
    with pytest.raises(UserError, match=r"\(6,\) .* \(5,\) describe the same LSTM"):
        create_network(NESTED, ACTIONS, *configs)


def test_first_policies_are_close_to_uniform():
    agent = conv_agent()
    prev_actions, env_outputs = random_steps(IMAGE, 1, 16)
    outputs, _ = agent(prev_actions, env_outputs, agent.initial_state(16), unroll=True)
    assert ACTIONS.entropy(outputs.policy_logits).numpy().min() > 0.9 * np.log(4)


def test_mixed_actions_go_in_and_out():
    space = spaces.Dict(steer=spaces.Box(-1, 1, (2,), np.float32), button=spaces.Discrete(3))
    distribution = get_parametric_distribution_for_action_space(space)
    agent = create_network(VECTOR, distribution, mlp=MLPNetworkConfig(lstm_sizes=(6,)))
    _, env_outputs = random_steps(VECTOR, 3, 2)
    prev_actions = {"steer": tf.zeros([3, 2, 2]), "button": tf.zeros([3, 2], tf.int64)}
    outputs, _ = agent(prev_actions, env_outputs, agent.initial_state(2), unroll=True)
    assert outputs.action["steer"].shape == (3, 2, 2)
    assert outputs.action["button"].dtype == tf.int64


def test_dmlab_takes_the_frame_out_of_a_nest():
    agent = ImpalaDeep(4)
    prev_actions, env_outputs = random_steps(LAB, 1, 2)
    nested = env_outputs._replace(
        observation={"RGB": env_outputs.observation, "INSTR": tf.zeros([1, 2], tf.string)}
    )
    state = agent.initial_state(2)
    plain, _ = agent(prev_actions, env_outputs, state, unroll=True)
    taken, _ = agent(prev_actions, nested, state, unroll=True)
    np.testing.assert_array_equal(plain.baseline, taken.baseline)
