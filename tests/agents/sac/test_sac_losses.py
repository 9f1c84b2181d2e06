"""The loss of SAC against loops in NumPy, and its gradients."""

import math

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from seed_rl.agents.sac import losses
from seed_rl.agents.sac.config import SACConfig
from seed_rl.agents.sac.networks import ActorCriticMLP
from seed_rl.common.acting.action_masks import KEY
from seed_rl.common.distributions.base import ParametricDistribution
from seed_rl.common.distributions.continuous import Normal, TanhNormal
from seed_rl.common.distributions.discrete import Categorical
from seed_rl.common.distributions.joint import joint_distribution
from seed_rl.common.distributions.spaces import get_parametric_distribution_for_action_space
from seed_rl.common.learner import variables
from seed_rl.common.learner.coefficients import FixedCoefficient
from seed_rl.common.normalization.normalizer import NormalizeObservationsWrapper, Normalizer
from seed_rl.common.types import EnvOutput

T, B, N = 5, 3, 2
NOISE = 0.7
ALPHA = 0.2


class SureNormal(Normal):
    """Its noise is always the same, so that a loop can repeat it."""

    def sample(self):
        return self.loc + NOISE * self.scale


class SureCategorical(Categorical):
    """Chooses alternately 0, 1, 2, 0, ... along the batch."""

    def sample(self):
        shape = self.logits.shape[:-1]
        return tf.reshape(tf.range(math.prod(shape)) % self.logits.shape[-1], shape)


def split(params):
    loc, scale = tf.split(params, 2, axis=-1)
    return SureNormal(loc, tf.exp(scale))


CONTINUOUS = ParametricDistribution(2 * N, split, (N,), reparametrizable=True)
DISCRETE = ParametricDistribution(
    3, lambda logits: SureCategorical(logits, tf.int32), (), lambda a: tf.one_hot(a, 3)
)
MIXED = joint_distribution((DISCRETE, CONTINUOUS), dtype_override=None)


class Linear(tf.Module):
    """Every output is linear in its inputs, plus a multiple of the sum of the previous action."""

    def __init__(self, seed, critics=(3,)):
        super().__init__()
        rng = np.random.default_rng(seed)
        self.pi, self.v, self.q = (
            rng.normal(size=size).astype(np.float32)
            for size in ((4, 2 * N), 4, (4 + N, math.prod(critics)))
        )
        self._critics = critics

    def get_action_params(self, prev_action, env_output, state):
        return tf.linalg.matmul(env_output[2], self.pi)

    def get_V(self, prev_action, env_output, state):
        return tf.linalg.matvec(env_output[2], self.v)

    def get_Q(self, prev_action, env_output, state, action):
        q = tf.linalg.matmul(tf.concat([env_output[2], action], -1), self.q)
        return tf.reshape(q, [*q.shape[:-1], *self._critics])


def batch(seed=0):
    """Terminated after step 1 of environment 0, abandoned after step 2 of environment 1."""
    rng = np.random.default_rng(seed)
    done, abandoned = np.zeros((2, T + 1, B), bool)
    done[2, 0] = done[3, 1] = abandoned[3, 1] = True
    reward = rng.normal(size=(T + 1, B)).astype(np.float32)
    reward[abandoned] = 0.0
    observation = rng.normal(size=(T + 1, B, 4)).astype(np.float32)
    steps = np.zeros((T + 1, B), np.int32)
    actions = rng.uniform(-1, 1, (T + 1, B, N)).astype(np.float32)
    return EnvOutput(reward, done, observation, abandoned, steps), actions


def log_density(params, action):
    loc, log_std = np.split(params, 2)
    z = (action - loc) / np.exp(log_std)
    return float(np.sum(-0.5 * z**2 - log_std - 0.5 * math.log(2 * math.pi)))


def quantile_loss(quantiles, goals):
    """Equations 5 and 6 of Dabney et al. 2017, with kappa 1, for one critic."""
    total = 0.0
    for i, quantile in enumerate(quantiles):
        for goal in goals:
            u = goal - quantile
            huber = 0.5 * u * u if abs(u) <= 1 else abs(u) - 0.5
            total += abs((2 * i + 1) / (2 * len(quantiles)) - (u < 0)) * huber
    return total / len(goals) / len(quantiles)


@pytest.mark.parametrize(("bootstrap_net", "quantiles"), [("v", 0), ("q", 0), ("q", 4)])
def test_losses_equal_loops(bootstrap_net, quantiles):
    """Guards every term: which network, which step, smallest critic, ends of both kinds; with
    quantiles, which of them are dropped from which values.
    """
    config = SACConfig(
        bootstrap_net=bootstrap_net,
        discounting=0.9,
        reward_scaling=2.0,
        max_abs_reward=0.0,
        dropped_quantiles_per_critic=1,
    )
    critics = (3, quantiles) if quantiles else (3,)
    agent, target = Linear(1, critics), Linear(2, critics)
    env_outputs, actions = batch()
    _, metrics = losses.compute_loss(
        config,
        CONTINUOUS,
        agent,
        target,
        FixedCoefficient(ALPHA),
        (),
        actions,
        env_outputs,
        actions,
    )
    reward, done, observation, abandoned, _ = env_outputs

    def fresh(t, b):
        params = observation[t, b] @ agent.pi
        action = params[:N] + NOISE * np.exp(params[N:])
        return action, log_density(params, action)

    def q(network, t, b, action):
        return np.concatenate([observation[t, b], action]) @ network.q

    sums = dict.fromkeys(("policy", "v", "q", "entropy"), 0.0)
    count = 0
    for t in range(T):
        for b in range(B):
            if abandoned[t + 1, b]:
                continue
            count += 1
            action, log_prob = fresh(t, b)
            values = q(agent, t, b, action)
            value = (np.mean(values) if quantiles else min(values)) - ALPHA * log_prob
            following = observation[t + 1, b] @ target.v
            if bootstrap_net == "q":
                next_action, next_log_prob = fresh(t + 1, b)
                ordered = np.sort(q(target, t + 1, b, next_action))
                following = ordered[: 3 * (quantiles - 1)] if quantiles else ordered[0]
                following -= ALPHA * next_log_prob
            goal = 2.0 * reward[t + 1, b] + 0.9 * (not done[t + 1, b]) * following
            sums["policy"] -= value
            sums["v"] += 0.5 * (observation[t, b] @ agent.v - value) ** 2
            taken = q(agent, t, b, actions[t, b])
            if quantiles:
                sums["q"] += sum(quantile_loss(critic, goal) for critic in taken.reshape(3, -1))
            else:
                sums["q"] += 0.5 * sum((goal - x) ** 2 for x in taken)
            sums["entropy"] -= log_prob
    assert count == T * B - 1
    assert ("losses/v" in metrics) == (bootstrap_net == "v")
    for name in ("policy", "q", *("v" if bootstrap_net == "v" else ())):
        np.testing.assert_allclose(metrics[f"losses/{name}"], sums[name] / count, rtol=1e-4)
    np.testing.assert_allclose(metrics["policy/entropy"], sums["entropy"] / count, rtol=1e-4)


def test_saturated_actions_have_their_exact_log_probability(monkeypatch):
    """Guards entropy and targets of a policy whose actions float32 rounds to 1 or -1."""
    monkeypatch.setattr(tf.random, "normal", lambda shape, dtype: tf.fill(shape, NOISE))
    config = SACConfig(bootstrap_net="q", discounting=0.9)
    agent, target = Linear(1), Linear(2)
    agent.pi[:, :N] *= 20
    tanh = ParametricDistribution(
        2 * N,
        lambda p: TanhNormal(p[..., :N], tf.exp(p[..., N:])),
        (N,),
        reparametrizable=True,
    )
    env_outputs, actions = batch()
    arguments = (FixedCoefficient(ALPHA), (), actions, env_outputs, actions)
    _, metrics = losses.compute_loss(config, tanh, agent, target, *arguments)

    loc, log_std = np.split(env_outputs.observation @ agent.pi, 2, axis=-1)
    x = loc + NOISE * np.exp(log_std)
    assert (np.abs(np.tanh(x)) > 0.999).mean() > 0.5
    slope = 2 * (math.log(2) - np.abs(x) - np.log1p(np.exp(-2 * np.abs(x))))
    log_prob = (-0.5 * NOISE**2 - log_std - 0.5 * math.log(2 * math.pi) - slope).sum(-1)
    mask = ~env_outputs.abandoned[1:]
    np.testing.assert_allclose(metrics["policy/entropy"], -log_prob[:-1][mask].mean(), rtol=1e-4)
    q = (np.concatenate([env_outputs.observation, np.tanh(x)], -1) @ target.q).min(-1)
    following = 0.9 * (q - ALPHA * log_prob)[1:] * ~env_outputs.done[1:]
    goal = (env_outputs.reward[1:] + following)[mask].mean()
    np.testing.assert_allclose(metrics["q/target"], goal, rtol=1e-4)


def gradients(loss, parts):
    with tf.GradientTape() as tape:
        value = loss()
    found = tape.gradient(value, parts, unconnected_gradients="zero")
    return [g.numpy() for g in found]


@pytest.mark.parametrize("bootstrap_net", ["v", "q"])
@pytest.mark.parametrize(
    "distribution", [CONTINUOUS, DISCRETE, MIXED], ids=["continuous", "discrete", "mixed"]
)
def test_each_part_is_trained_by_its_own_loss(distribution, bootstrap_net):
    """Guards against losses that leak: the gradient of the sum is, for each part of the network,
    the gradient of that part's loss alone, with everything else constant. Where a part of an action
    has no gradient, the policy gradient treats all of it as fixed.
    """
    tf.keras.utils.set_random_seed(3)
    agent, target = (ActorCriticMLP(distribution, 2, (8,)) for _ in range(2))
    env_outputs, actions = batch()
    state = agent.initial_state(B)
    env_outputs = tf.nest.map_structure(tf.constant, env_outputs)
    choices = (np.abs(actions[..., 0]) * 3).astype(np.int32)
    if distribution is not CONTINUOUS:
        actions = choices if distribution is DISCRETE else (choices, actions)
    actions = tf.nest.map_structure(tf.constant, actions)
    config = SACConfig(bootstrap_net=bootstrap_net)
    mask = tf.cast(~env_outputs.abandoned[1:], tf.float32)
    seen = tf.nest.map_structure(lambda t: t[:-1], (actions, env_outputs))

    def mean(values):
        return tf.reduce_sum(values * mask) / tf.reduce_sum(mask)

    def whole():
        return losses.compute_loss(
            config,
            distribution,
            agent,
            target,
            FixedCoefficient(ALPHA),
            state,
            actions,
            env_outputs,
            actions,
        )[0]

    whole()  # Creates the variables.
    pi = distribution(agent.get_action_params(*seen, state))
    value = tf.reduce_min(agent.get_Q(*seen, state, pi.sample()), -1) - ALPHA * pi.log_prob(
        pi.sample()
    )
    if bootstrap_net == "v":
        following = target.get_V(actions, env_outputs, state)[1:]
    else:
        p = distribution(agent.get_action_params(actions, env_outputs, state))
        q = tf.reduce_min(target.get_Q(actions, env_outputs, state, p.sample()), -1)
        following = (q - ALPHA * p.log_prob(p.sample()))[1:]
    goal = env_outputs.reward[1:] + 0.99 * following * tf.cast(~env_outputs.done[1:], tf.float32)

    def actor_loss():
        policy = distribution(agent.get_action_params(*seen, state))
        action = policy.sample()
        if distribution is CONTINUOUS:
            q = tf.reduce_min(agent.get_Q(*seen, state, action), -1)
            return mean(ALPHA * policy.log_prob(action) - q)
        log_prob = policy.log_prob(tf.nest.map_structure(tf.stop_gradient, action))
        advantage = value - agent.get_V(*seen, state)
        advantage -= mean(advantage)
        advantage /= tf.sqrt(mean(advantage**2))
        return -mean(log_prob * tf.stop_gradient(advantage))

    def critic_loss():
        taken = tf.nest.map_structure(lambda t: t[:-1], actions)
        errors = agent.get_Q(*seen, state, taken) - goal[..., tf.newaxis]
        return 0.5 * mean(tf.reduce_sum(errors**2, -1))

    parts = {
        "_actor": actor_loss,
        "_v": lambda: 0.5 * mean((agent.get_V(*seen, state) - value) ** 2),
        "_q": critic_loss,
    }
    if bootstrap_net == "q" and distribution is CONTINUOUS:
        del parts["_v"]  # Not trained: nothing reads it.
    for name, loss in parts.items():
        part = variables.trainable_variables(getattr(agent, name))
        for found, expected in zip(gradients(whole, part), gradients(loss, part), strict=True):
            assert np.abs(expected).max() > 0
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)
    assert all(not g.any() for g in gradients(whole, variables.trainable_variables(target)))


def test_critics_may_ignore_a_part_of_the_action():
    """Guards actions of several boxes: what does not matter has a gradient of 0."""
    actions = {"used": tf.ones([2, 3, 1]), "ignored": tf.ones([2, 3, 2])}
    with tf.GradientTape() as tape:
        tape.watch(actions)
        q = losses._of_actions(lambda part: 2.0 * part["used"][..., 0], actions, True)
    gradient = tape.gradient(q, actions)
    np.testing.assert_array_equal(q, np.full([2, 3], 2.0))
    np.testing.assert_array_equal(gradient["used"], np.full([2, 3, 1], 2.0))
    np.testing.assert_array_equal(gradient["ignored"], np.zeros([2, 3, 2]))


@pytest.mark.slow
@pytest.mark.parametrize("quantiles", [1, 5])
def test_a_policy_learns_to_repeat_what_it_sees(quantiles):
    """Actor, critics and target together, from actions of a uniform policy; a wrong sign, step or
    shape fails here.
    """
    tf.keras.utils.set_random_seed(1)
    tanh = get_parametric_distribution_for_action_space(spaces.Box(-1, 1, (1,), np.float32))
    agent, target = (ActorCriticMLP(tanh, 2, (32,), n_quantiles=quantiles) for _ in range(2))
    config = SACConfig(bootstrap_net="q", discounting=0.5, dropped_quantiles_per_critic=1)
    optimizer = tf.keras.optimizers.Adam(0.01)

    def loss():
        seen, actions = (tf.random.uniform([2, 64, 1], -1.0, 1.0) for _ in range(2))
        reward = -tf.square(seen - actions)[:, :, 0]
        no, steps = tf.zeros([2, 64], tf.bool), tf.zeros([2, 64], tf.int32)
        outputs = EnvOutput(tf.roll(reward, 1, axis=0), no, seen, no, steps)
        cost = FixedCoefficient(0.01)
        arguments = (config, tanh, agent, target, cost, (), actions, outputs, actions)
        return losses.compute_loss(*arguments)[0]

    loss()
    trained = variables.trainable_variables(agent)
    optimizer.build(trained)

    @tf.function(autograph=False)
    def train():
        with tf.GradientTape() as tape:
            value = loss()
        optimizer.apply(tape.gradient(value, trained), trained)
        critics = (variables.variables(network._q) for network in (target, agent))
        for follower, leader in zip(*critics, strict=True):
            follower.assign(0.95 * follower + 0.05 * leader)

    def error():
        seen = tf.reshape(tf.linspace(-0.8, 0.8, 9), [1, 9, 1])
        no = tf.zeros([1, 9], tf.bool)
        outputs = EnvOutput(tf.zeros([1, 9]), no, seen, no, tf.zeros([1, 9], tf.int32))
        mode = tanh.mode(agent.get_action_params(seen, outputs, ()))
        return float(tf.reduce_mean(tf.abs(mode - seen)))

    assert error() > 0.3, "it must not be known beforehand"
    for _ in range(300):
        train()
    assert error() < 0.15


def test_a_network_that_normalizes_its_observations_learns_their_statistics():
    """Only a call of the network as such tells it that it is trained; the losses call its parts."""
    network = NormalizeObservationsWrapper(ActorCriticMLP(CONTINUOUS, 2, (8,)), Normalizer())
    target = NormalizeObservationsWrapper(ActorCriticMLP(CONTINUOUS, 2, (8,)), Normalizer())
    env_outputs, actions = batch()
    arguments = tf.nest.map_structure(tf.constant, (actions, env_outputs, actions))

    @tf.function(autograph=False)
    def train():
        state = network.initial_state(B)
        temperature = FixedCoefficient(ALPHA)
        losses.compute_loss(
            SACConfig(), CONTINUOUS, network, target, temperature, state, *arguments
        )
        network.end_of_training_step_callback()

    train()
    seen = env_outputs.observation.reshape(-1, 4)
    logs = network._normalizer.get_logs()
    np.testing.assert_allclose(logs["normalizer/mean"], seen.mean(0), rtol=1e-5)
    np.testing.assert_allclose(logs["normalizer/std"], seen.std(0), rtol=1e-5)


def test_without_an_entropy_bonus():
    """Guards existing programs, whose networks may have a temperature of 0."""
    env_outputs, actions = batch()
    arguments = (Linear(1), FixedCoefficient(0.0), (), actions, env_outputs, actions)
    loss, _ = losses.compute_loss(SACConfig(), CONTINUOUS, Linear(2), *arguments)
    assert np.isfinite(loss)


@pytest.mark.parametrize("target", [None, 0.3])
def test_the_temperature_moves_towards_the_target(target):
    """By default half the entropy of what masks allow: the gradient against NumPy's targets."""
    space = spaces.MultiDiscrete([4, 3])
    distribution = get_parametric_distribution_for_action_space(space)
    env_outputs, _ = batch()
    rng = np.random.default_rng(1)
    mask = rng.random((T + 1, B, 7)) < 0.5
    mask[..., [0, 4]] = True
    observation = {"x": env_outputs.observation, KEY: mask.astype(np.uint8)}
    env_outputs = env_outputs._replace(observation=observation)
    actions = np.zeros((T + 1, B, 2), np.int64)
    agent = ActorCriticMLP(distribution, 2, [8])
    config = SACConfig(target_entropy=target, entropy_cost=0.5)
    temperature = losses.create_temperature(config, space)
    np.testing.assert_allclose(temperature(), 0.5, rtol=1e-6)
    arguments = (distribution, agent, agent, temperature, (), actions, env_outputs, actions)
    with tf.GradientTape() as tape:
        loss, metrics = losses.compute_loss(config, *arguments)
    [gradient] = tape.gradient(loss, variables.trainable_variables(temperature))
    kept = ~env_outputs.abandoned[1:]
    allowed = [mask[:-1, :, part].sum(-1)[kept] for part in (slice(0, 4), slice(4, 7))]
    targets = 0.5 * np.log(np.prod(allowed, axis=0)).mean() if target is None else target
    # Of the logarithm of the temperature, so without a factor of 0.5.
    np.testing.assert_allclose(gradient, metrics["policy/entropy"] - targets, rtol=1e-4)


def test_a_fixed_temperature_has_no_variable():
    config = SACConfig(entropy_cost=0.3, entropy_cost_adjustment_speed=0.0)
    temperature = losses.create_temperature(config, spaces.Discrete(3))
    assert not variables.variables(temperature)
    np.testing.assert_allclose(temperature(), 0.3)


@pytest.mark.parametrize(
    ("space", "target"),
    [
        (spaces.Box(-1, 1, (6,)), -6.0),
        (spaces.Discrete(9, start=1), math.log(3)),
        (spaces.MultiDiscrete([4, 16]), math.log(2) + math.log(4)),
        (spaces.MultiBinary(2), math.log(2)),
        (spaces.Dict(a=spaces.Discrete(4), b=spaces.Box(-1, 1, (2,))), math.log(2) - 2),
    ],
)
def test_default_target_entropy(space, target):
    assert losses.default_target_entropy(space) == pytest.approx(target)
