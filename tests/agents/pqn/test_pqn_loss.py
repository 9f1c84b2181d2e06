"""PQN's targets, loss and training step against NumPy."""

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from seed_rl.agents.policy_gradient.config import SPLIT, MinibatchSettings
from seed_rl.agents.pqn.algorithm import PQN, QLoss
from seed_rl.agents.pqn.config import PQNConfig
from seed_rl.agents.pqn.networks import QNetwork
from seed_rl.common.config.network_config import MLPNetworkConfig
from seed_rl.common.distributions.discrete import categorical_distribution
from seed_rl.common.learner.algorithm import StepResult
from seed_rl.common.networks.network_factory import create_network
from seed_rl.common.types import Unroll
from tests.helpers.contexts import context
from tests.helpers.network_inputs import random_batch

NUM_ACTIONS, GAMMA = 3, 0.9
DISTRIBUTION = categorical_distribution(NUM_ACTIONS, tf.int32)


def n_step_returns(values, env, t, b):
    """Discounted returns of 1, 2, ... steps from step t, up to the last that there is.

    They end where the episode does: with no value if it terminated, with that of its last state if
    it was truncated, or with that of the last step of the unroll.
    """
    returns, rewards, steps = [], 0.0, len(values) - 1 - t
    for n in range(1, steps + 1):
        rewards += GAMMA ** (n - 1) * env.reward[t + n, b]
        if env.done[t + n, b]:
            return [*returns, rewards]
        returns.append(rewards + GAMMA**n * values[t + n, b])
        if n < steps and env.abandoned[t + n + 1, b]:
            break
    return returns


def lambda_return(returns, lambda_):
    """The mean of all with weights 1, lambda, lambda^2, ..., the last of which has the rest."""
    weights = (1 - lambda_) * lambda_ ** np.arange(len(returns))
    weights[-1] = lambda_ ** (len(returns) - 1)
    return float(weights @ returns)


def numpy_targets(values, env, lambda_):
    """(returns, whether there was a transition), [time, batch]."""
    real = ~env.abandoned[1:]
    targets = np.zeros(real.shape)
    for t, b in zip(*np.nonzero(real), strict=True):
        targets[t, b] = lambda_return(n_step_returns(values, env, t, b), lambda_)
    return targets, real


def q_batch(seed):
    """A network whose baseline is its largest Q-value, what it met, and what was done."""
    agent, env, acted = random_batch(seed)
    agent.baseline.assign(tf.reduce_max(agent.policy_logits, -1))
    return agent, env, acted


def arguments(env, acted):
    env, acted = tf.nest.map_structure(tf.constant, (env, acted))
    return (), acted.action, env, acted


@pytest.mark.parametrize("lambda_", [0.0, 0.65, 1.0])
def test_targets_equal_numpy(lambda_):
    """Guards terminations, truncations and the ends of unrolls, which all occur."""
    config = PQNConfig(discounting=GAMMA, trace_lambda=lambda_)
    for seed in range(3):
        agent, env, acted = q_batch(seed)
        assert env.abandoned[1:].any() and (env.done & ~env.abandoned)[1:].any()
        targets, _ = QLoss(agent, DISTRIBUTION, config).compute_advantages(*arguments(env, acted))
        expected, real = numpy_targets(agent.baseline.numpy(), env, lambda_)
        np.testing.assert_allclose(targets.numpy()[real], expected[real], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bound", [0.0, 1.0])
def test_loss_and_gradient_equal_numpy(bound):
    """Only Q-values of actions that were taken learn, and a target passes no gradient back.

    One action is masked, and actions are numbered from 5.
    """
    config = PQNConfig(discounting=GAMMA, max_abs_reward=bound, reward_scaling=0.5)
    agent, env, acted = q_batch(3)
    q_values = agent.policy_logits.numpy()
    acted.action[0, 0] = 0
    q_values[0, 0, 1] = -np.inf
    agent.policy_logits.assign(q_values)
    agent.baseline.assign(tf.reduce_max(agent.policy_logits, -1))
    loss = QLoss(agent, categorical_distribution(NUM_ACTIONS, tf.int32, start=5), config)
    with tf.GradientTape() as tape:
        value = loss(*arguments(env, acted._replace(action=acted.action + 5)))
    clipped = np.clip(env.reward, -bound, bound) if bound else env.reward
    env = env._replace(reward=0.5 * clipped)
    targets, real = numpy_targets(agent.baseline.numpy(), env, config.trace_lambda)
    expected, slopes = 0.0, np.zeros_like(q_values)
    for t, b in zip(*np.nonzero(real), strict=True):
        action = acted.action[t, b]
        error = q_values[t, b, action] - targets[t, b]
        expected += 0.5 * error**2 / real.sum()
        slopes[t, b, action] = error / real.sum()
    assert float(value) == pytest.approx(expected, rel=1e-5)
    gradient = tape.gradient(value, agent.policy_logits)
    np.testing.assert_allclose(gradient, slopes, rtol=1e-4, atol=1e-6)


def test_a_step_computes_its_targets_once():
    """Two epochs of gradient descent on a linear network, by hand.

    Guards targets that would move with the weights between the epochs.
    """
    states, learning_rate = 4, 0.3
    space = spaces.Box(0.0, 1.0, (states,), np.float32)
    _, env, acted = random_batch(5, num_steps=6, batch=4)
    seen = np.random.default_rng(6).integers(0, states, env.done.shape)
    one_hot = np.eye(states, dtype=np.float32)[seen]
    algorithm = PQN(
        PQNConfig(discounting=GAMMA),
        MinibatchSettings(SPLIT, epochs_per_step=2, batches_per_step=1),
        context(
            lambda: create_network(
                space, DISTRIBUTION, mlp=MLPNetworkConfig(mlp_sizes=()), network=QNetwork
            ),
            DISTRIBUTION,
            space,
            num_envs=4,
        ),
    )
    unroll = tf.nest.map_structure(
        tf.constant, Unroll((), acted.action, env._replace(observation=one_hot), acted)
    )
    algorithm.call(algorithm.network, *tf.nest.map_structure(lambda t: t[0], unroll[1:3]), ())
    bias, kernel = sorted(algorithm.trainable_variables(), key=lambda v: v.shape.rank)
    weights, offset = kernel.numpy(), bias.numpy()

    def minimize(loss):
        with tf.GradientTape() as tape:
            result = loss()
        for variable, slope in zip(
            (kernel, bias), tape.gradient(result.loss, (kernel, bias)), strict=True
        ):
            variable.assign_sub(learning_rate * slope)
        return StepResult(result.loss, result.metrics)

    algorithm.update(unroll, minimize)
    values = (weights + offset)[seen].max(-1)
    targets, real = numpy_targets(values, env, 0.65)
    for _ in range(2):
        slopes = np.zeros_like(weights)
        for t, b in zip(*np.nonzero(real), strict=True):
            state, action = seen[t, b], acted.action[t, b]
            error = weights[state, action] + offset[action] - targets[t, b]
            slopes[state, action] += error / real.sum()
        weights = weights - learning_rate * slopes
        offset = offset - learning_rate * slopes.sum(0)
    np.testing.assert_allclose(kernel, weights, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(bias, offset, rtol=1e-4, atol=1e-5)
