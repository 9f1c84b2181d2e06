"""The V-trace loss against a step-by-step NumPy reading, and its rules at episode ends."""

import math

import numpy as np
import pytest
import tensorflow as tf
from scipy.integrate import trapezoid
from scipy.special import log_softmax

from seed_rl.agents.vtrace import losses
from seed_rl.agents.vtrace.config import VTraceConfig
from seed_rl.common.distributions.continuous import Normal
from seed_rl.common.errors import UserError
from seed_rl.common.parametric_distribution import (
    categorical_distribution,
    multi_categorical_distribution,
)
from tests.helpers.network_inputs import NUM_ACTIONS, random_batch

DISTRIBUTION = categorical_distribution(NUM_ACTIONS, tf.int32)


def compute(config, agent, env_outputs, behaviour, replay_ratio=0):
    env_outputs, behaviour = tf.nest.map_structure(tf.constant, (env_outputs, behaviour))
    return losses.compute_loss(
        config,
        DISTRIBUTION,
        agent,
        (),
        behaviour.action,
        env_outputs,
        behaviour,
        losses.create_entropy_cost(config),
        replay_ratio=replay_ratio,
    )


def numpy_loss(config, agent, env, behaviour, replay_ratio=0):
    """One transition at a time, one environment at a time; abandonment handled by `if`s."""
    logits, values = agent.policy_logits.numpy(), agent.baseline.numpy()
    num_steps = len(values) - 1
    targets, errors = [], []
    sums = dict(policy=0.0, baseline=0.0, entropy=0.0, kl=0.0)
    count = num_new = num_trusted = 0
    for b in range(values.shape[1]):
        new = b < values.shape[1] / (1 + replay_ratio)
        next_target = values[num_steps, b]
        correction = 0.0  # v_{t+1} - V(x_{t+1})
        for t in reversed(range(num_steps)):
            if env.abandoned[t + 1, b]:
                # Nothing happened between this state and the next episode's first.
                correction, next_target = 0.0, values[t, b]
                continue
            count += 1
            log_pi, log_mu = log_softmax(logits[t, b]), log_softmax(behaviour.policy_logits[t, b])
            pi, mu = np.exp(log_pi), np.exp(log_mu)
            action = behaviour.action[t, b]
            rho = pi[action] / mu[action]
            implied = np.minimum(config.max_importance_weight * mu, pi)
            divergence = (pi * (log_pi - np.log(implied / implied.sum()))).sum()
            if config.trust_region is not None and divergence > config.trust_region:
                rho = 0.0
            num_trusted += rho > 0
            reward = env.reward[t + 1, b]
            if config.reward_shaping == "soft_asymmetric":
                reward = 5 * math.tanh(reward / 5) * (0.3 if reward < 0 else 1)
            reward *= config.reward_scaling
            if config.max_abs_reward is not None:
                reward = max(-config.max_abs_reward, min(config.max_abs_reward, reward))
            gamma = 0.0 if env.done[t + 1, b] else config.discounting
            delta = min(config.max_importance_weight, rho) * (
                reward + gamma * values[t + 1, b] - values[t, b]
            )
            advantage = min(config.max_pg_importance_weight, rho) * (
                reward + gamma * next_target - values[t, b]
            )
            correction = delta + gamma * config.lambda_ * min(1.0, rho) * correction
            next_target = values[t, b] + correction
            targets.append(next_target)
            errors.append(correction)
            sums["policy"] -= log_pi[action] * advantage
            sums["baseline"] += 0.5 * correction**2
            num_new += new
            sums["entropy"] -= new * (pi * log_pi).sum()
            sums["kl"] += new * (mu * (log_mu - log_pi)).sum()
    counts = dict.fromkeys(("entropy", "kl"), num_new)
    means = {name: total / counts.get(name, count) for name, total in sums.items()}
    means["trusted"] = num_trusted / count
    loss = (
        means["policy"]
        + config.baseline_cost * means["baseline"]
        - config.entropy_cost * means["entropy"]
        + config.kl_cost * means["kl"]
    )
    return loss, means, targets, errors


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("config", "replay_ratio"),
    [
        (VTraceConfig(), 0),
        (VTraceConfig(kl_cost=0.2, max_importance_weight=1.2, trust_region=0.2), 4),
        (
            VTraceConfig(
                discounting=0.9,
                lambda_=0.8,
                max_importance_weight=1.3,
                max_pg_importance_weight=2.0,
                reward_shaping="soft_asymmetric",
                reward_scaling=0.7,
                max_abs_reward=1.0,
                baseline_cost=0.7,
                entropy_cost=0.3,
                kl_cost=0.2,
            ),
            0,
        ),
    ],
    ids=["defaults", "replay", "all_options"],
)
def test_equals_numpy(config, replay_ratio, seed):
    agent, env_outputs, behaviour = random_batch(seed)
    assert env_outputs.abandoned.any() and (env_outputs.done & ~env_outputs.abandoned).any()
    arguments = (config, agent, env_outputs, behaviour, replay_ratio)
    loss, metrics = compute(*arguments)
    expected, means, targets, errors = numpy_loss(*arguments)
    if config.trust_region is not None:
        assert 0.1 < means["trusted"] < 0.9
        assert metrics["policy/trusted"].numpy() == pytest.approx(means["trusted"])
    assert loss.numpy() == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert metrics["losses/policy"].numpy() == pytest.approx(means["policy"], rel=1e-4, abs=1e-5)
    assert metrics["losses/baseline"].numpy() == pytest.approx(means["baseline"], rel=1e-4)
    assert metrics["policy/entropy"].numpy() == pytest.approx(means["entropy"], rel=1e-4)
    assert metrics["losses/kl"].numpy() == pytest.approx(means["kl"], rel=1e-4)
    assert metrics["value/explained_variance"].numpy() == pytest.approx(
        1 - np.var(errors) / np.var(targets), rel=1e-3, abs=1e-4
    )
    assert all(value.shape == () for value in metrics.values())


def test_the_divergence_of_continuous_actions_is_estimated():
    """Guards the trust region where no sum over actions exists, against the integral."""
    tf.keras.utils.set_random_seed(0)
    grid = np.linspace(-12, 12, 100_001)

    def density(loc, scale):
        return np.exp(-0.5 * ((grid - loc) / scale) ** 2) / scale / math.sqrt(2 * math.pi)

    def normal(loc, scale):
        return Normal(tf.fill([2000, 1], loc), tf.fill([2000, 1], scale))

    for mu in ((0.0, 1.0), (0.5, 1.2), (1.5, 0.7)):
        pi_x, mu_x = density(0.0, 1.0), density(*mu)
        shared = np.minimum(pi_x, mu_x)
        kept = trapezoid(shared, grid)
        ratio = pi_x * np.log(np.maximum(pi_x, 1e-300) / np.maximum(shared / kept, 1e-300))
        expected = ratio.sum() * (grid[1] - grid[0])
        estimates = losses.implied_divergence(normal(0.0, 1.0), normal(*mu), 1.0)
        assert np.mean(estimates) == pytest.approx(expected, rel=0.1, abs=1e-4)


def test_the_divergence_of_several_choices_is_estimated():
    """Guards the trust region for MultiDiscrete, whose distribution is a kind of Categorical."""
    rng = np.random.default_rng(0)
    pi, mu = (tf.constant(rng.normal(size=(1, 1, 4)), tf.float32) for _ in range(2))
    two_choices = multi_categorical_distribution(2, 2, tf.int32)
    many = [two_choices(tf.tile(logits, [50, 40, 1])) for logits in (pi, mu)]
    estimate = losses.implied_divergence(*many, max_weight=1.0)
    assert estimate.shape == (50, 40)
    # Two choices of two are one of four.
    joint = [
        categorical_distribution(4, tf.int32)(
            tf.reshape(logits[..., :2, None] + logits[..., None, 2:], [1, 1, 4])
        )
        for logits in (pi, mu)
    ]
    exact = losses.implied_divergence(*joint, max_weight=1.0)
    assert np.mean(estimate) == pytest.approx(exact.numpy().item(), rel=0.2)


def test_an_abandoned_episode_is_learned_from_as_if_it_had_gone_on():
    """Cut at step 7, an episode must give the same loss as inside a longer one."""
    config = VTraceConfig(entropy_cost=0.1, kl_cost=0.1)
    agent, env_outputs, behaviour = random_batch(0, num_steps=7, p_done=0.0)
    _, going_on = gradients(config, agent, env_outputs, behaviour)

    # The same seven transitions, then the ignored action and the next episode's first two steps.
    longer_agent, longer_env, longer_behaviour = random_batch(1, num_steps=9, p_done=0.0)
    longer_env.reward[:8], longer_env.reward[8] = env_outputs.reward, 0.0
    longer_env.done[8] = longer_env.abandoned[8] = True
    for ours, theirs in zip(longer_behaviour, behaviour, strict=True):
        ours[:8] = theirs
    longer_agent.policy_logits[:8].assign(agent.policy_logits)
    longer_agent.baseline[:8].assign(agent.baseline)
    _, cut = gradients(config, longer_agent, longer_env, longer_behaviour)

    # Losses are means over real transitions: 7 there; 7 and one of the next episode here.
    for one, other in zip(going_on, cut, strict=True):
        np.testing.assert_allclose(one[:7] * 7, other[:7] * 8, rtol=1e-4, atol=1e-6)
        assert np.abs(other[:7]).min() > 0
        np.testing.assert_array_equal(other[7], np.zeros_like(other[7]))


def test_the_ignored_action_changes_nothing():
    agent, env_outputs, behaviour = random_batch(3)
    _, expected = gradients(VTraceConfig(kl_cost=0.5), agent, env_outputs, behaviour)
    ignored = np.zeros_like(env_outputs.abandoned)
    ignored[:-1] = env_outputs.abandoned[1:]
    behaviour.action[ignored] = (behaviour.action[ignored] + 1) % NUM_ACTIONS
    # Even a behaviour policy that could never have chosen it.
    behaviour.policy_logits[ignored] = [-1e9, 0.0, 1e9]
    _, actual = gradients(VTraceConfig(kl_cost=0.5), agent, env_outputs, behaviour)
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("config", "one", "ten", "penalty"),
    [
        (VTraceConfig(reward_shaping="optimistic_asymmetric"), 3.808, 5.0, -0.2285),
        (VTraceConfig(asymmetric_rewards=True), 3.808, 5.0, -0.2285),  # Existing scripts.
        (VTraceConfig(reward_shaping="soft_asymmetric"), 0.9869, 4.820, -0.2961),
        (VTraceConfig(), 1.0, 10.0, -1.0),
    ],
)
def test_rewards_are_shaped_as_in_the_paper_or_its_code(config, one, ten, penalty):
    rewards = tf.constant([1.0, 10.0, -1.0, 0.0])
    actual = losses.shaped(rewards, config.shaping).numpy()
    np.testing.assert_allclose(actual, [one, ten, penalty, 0.0], rtol=1e-3)


def test_contradicting_shapings_are_refused():
    with pytest.raises(UserError, match="Leave out --asymmetric_rewards"):
        VTraceConfig(reward_shaping="soft_asymmetric", asymmetric_rewards=True)


def test_a_reward_bound_of_zero_is_no_bound():
    """Existing scripts pass --max_abs_reward=0 for rewards as they are."""
    agent, env_outputs, behaviour = random_batch(4)
    unbounded, _ = compute(VTraceConfig(), agent, env_outputs, behaviour)
    zero, _ = compute(VTraceConfig(max_abs_reward=0.0), agent, env_outputs, behaviour)
    assert zero.numpy() == unbounded.numpy()


def test_a_batch_without_any_real_transition_is_no_nan():
    agent, env_outputs, behaviour = random_batch(0, num_steps=1, p_done=0.0)
    env_outputs.done[1] = env_outputs.abandoned[1] = True
    loss, grads = gradients(VTraceConfig(), agent, env_outputs, behaviour)
    assert loss.numpy() == 0.0
    assert all(not np.any(gradient) for gradient in grads)


def masked(batch, forbidden):
    """The batch with logits of `forbidden` for the last action, which is never taken."""
    agent, env_outputs, behaviour = batch
    behaviour.action[behaviour.action == NUM_ACTIONS - 1] = 0
    behaviour.policy_logits[..., -1] = forbidden
    agent.policy_logits.assign(
        np.concatenate(
            [agent.policy_logits[..., :-1], np.full_like(agent.policy_logits[..., -1:], forbidden)],
            axis=-1,
        )
    )
    return agent, env_outputs, behaviour


def test_masked_actions_are_learned_from_like_very_unlikely_ones():
    """Guards action masking with -inf: a NaN gradient had every training step skipped."""
    config = VTraceConfig(entropy_cost=0.1, kl_cost=0.1)
    loss, actual = gradients(config, *masked(random_batch(5), -math.inf))
    expected_loss, expected = gradients(config, *masked(random_batch(5), -1e4))
    assert loss.numpy() == pytest.approx(expected_loss.numpy(), rel=1e-5)
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-7)
        assert np.abs(one).max() > 1e-3


def test_an_action_that_the_new_policy_forbids_weighs_nothing():
    """Guards 0 x inf where a mask has changed since the action was taken."""
    agent, env_outputs, behaviour = random_batch(6, p_done=0.0)
    behaviour.action[3, 2] = 1
    logits = agent.policy_logits.numpy()
    logits[3, 2, 1] = -math.inf
    agent.policy_logits.assign(logits)
    loss, (by_logits, by_baseline) = gradients(VTraceConfig(), agent, env_outputs, behaviour)
    assert np.isfinite(loss)
    assert np.isfinite(by_logits).all() and np.isfinite(by_baseline).all()
    without_entropy = VTraceConfig(entropy_cost=0.0)
    _, (by_logits, _) = gradients(without_entropy, agent, env_outputs, behaviour)
    np.testing.assert_array_equal(by_logits[3, 2], 0.0)
    assert np.abs(by_logits[4, 2]).max() > 0


def gradients(config, agent, env_outputs, behaviour):
    with tf.GradientTape() as tape:
        loss, _ = compute(config, agent, env_outputs, behaviour)
    return loss, [g.numpy() for g in tape.gradient(loss, [agent.policy_logits, agent.baseline])]


# ---- Entropy cost --------------------------------------------------------------------------------


def test_the_policy_does_not_learn_through_the_cost_nor_the_cost_through_the_policy():
    """The multiplier only sees the gap; the network only sees the multiplier's value."""
    config = VTraceConfig(target_entropy=0.5, entropy_cost=0.1)
    agent, env_outputs, behaviour = random_batch(2)
    cost = losses.create_entropy_cost(config)
    inputs = tf.nest.map_structure(tf.constant, (env_outputs, behaviour))
    with tf.GradientTape() as tape:
        loss, metrics = losses.compute_loss(
            config, DISTRIBUTION, agent, (), inputs[1].action, *inputs, cost
        )
    grad = tape.gradient(loss, cost.parameter).numpy()
    gap = metrics["policy/entropy"].numpy() - 0.5
    assert grad == pytest.approx(config.entropy_cost_adjustment_speed * 0.1 * gap, rel=1e-4)
    _, adjusted = gradients(config, agent, env_outputs, behaviour)
    _, fixed = gradients(VTraceConfig(entropy_cost=0.1), agent, env_outputs, behaviour)
    for one, other in zip(adjusted, fixed, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("value", [0.3, 0.0])
@pytest.mark.parametrize(
    "options", [{}, {"target_entropy": 0.5, "entropy_cost_adjustment_speed": 0.0}]
)
def test_a_fixed_entropy_cost_has_no_variables(options, value):
    """Guards, too, training without entropy bonus where a preset has a target."""
    cost = losses.create_entropy_cost(VTraceConfig(entropy_cost=value, **options))
    assert not cost.variables and cost().numpy() == pytest.approx(value)


def test_a_target_entropy_needs_a_cost_to_begin_with():
    """A multiplier of 0 would stay 0, without any entropy bonus."""
    with pytest.raises(UserError, match="--entropy_cost"):
        losses.create_entropy_cost(VTraceConfig(target_entropy=0.5, entropy_cost=0.0))
