"""The on-policy loss against NumPy, one transition at a time, and its rules at episode ends."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import log_softmax

from seed_rl.agents.policy_gradient.modules import policy_losses
from seed_rl.agents.policy_gradient.modules.generalized_onpolicy_loss import (
    GeneralizedOnPolicyLoss,
)
from seed_rl.agents.policy_gradient.modules.logging_module import LoggingTape
from seed_rl.agents.policy_gradient.modules.policy_regularizers import KLPolicyRegularizer
from seed_rl.common.learner.coefficients import LagrangeInequalityCoefficient
from seed_rl.common.normalization.popart import PopArt
from seed_rl.common.normalization.running_statistics import EMAMeanStd
from seed_rl.common.parametric_distribution import categorical_distribution
from seed_rl.common.returns.advantages import GAE
from seed_rl.common.types import EnvOutput
from tests.helpers.network_inputs import TableAgent, random_batch

DISTRIBUTION = categorical_distribution(3, tf.int32)
LAMBDA = 0.8


def make_loss(agent, discount=0.9, policy_loss=None, reward_normalizer=None, **options):
    return GeneralizedOnPolicyLoss(
        agent,
        reward_normalizer,
        DISTRIBUTION,
        GAE(LAMBDA),
        policy_loss or policy_losses.pg(),
        discount,
        **options,
    )


def arguments(env_outputs, behaviour):
    env_outputs, behaviour = tf.nest.map_structure(tf.constant, (env_outputs, behaviour))
    return (), behaviour.action, env_outputs, behaviour


def numpy_loss(agent, env, acted, discount, scale=1.0, clip=None, huber=None, eps=None, **options):
    """(policy, value, entropy) losses with GAE."""
    logits, values = agent.policy_logits.numpy(), agent.baseline.numpy()
    entropy_cost = options.get("entropy_in_returns", 0.0)
    properly = options.get("properly", True)
    sums, count = np.zeros(3), 0

    def value_loss(error):
        if huber is None:
            return error**2
        return 0.5 * error**2 if abs(error) < huber else huber * (abs(error) - 0.5 * huber)

    for b in range(values.shape[1]):
        following = 0.0
        for t in reversed(range(len(values) - 1)):
            if env.abandoned[t + 1, b] and properly:
                following = 0.0
                continue
            count += 1
            log_pi = log_softmax(logits[t, b])
            entropy = -(np.exp(log_pi) * log_pi).sum()
            reward = env.reward[t + 1, b]
            if clip is not None:
                reward = max(-clip, min(clip, reward))
            reward = scale * reward + entropy_cost * entropy
            gamma = 0.0 if env.done[t + 1, b] else discount
            value = values[t, b]
            following = reward + gamma * values[t + 1, b] - value + gamma * LAMBDA * following
            target = value + following
            loss = value_loss(value - target)
            if eps is not None:
                old = acted.baseline[t, b]
                loss = max(loss, value_loss(max(old - eps, min(old + eps, value)) - target))
            sums += (-log_pi[acted.action[t, b]] * following, loss, -entropy)
    return sums / count


@pytest.mark.parametrize(
    ("options", "numpy_options"),
    [
        ({}, {}),
        (dict(max_abs_reward=1.0, reward_scaling=0.3), dict(clip=1.0, scale=0.3)),
        (dict(huber_delta=0.4, max_abs_reward=0.0), dict(huber=0.4)),  # 0: no clipping.
        (dict(value_ppo_style_clip_eps=0.3), dict(eps=0.3)),
        (dict(value_ppo_style_clip_eps=0.3, huber_delta=0.4), dict(eps=0.3, huber=0.4)),
        (dict(handle_abandoned_episodes_properly=False), dict(properly=False)),
        (dict(include_regularization_in_returns=True), dict(entropy_in_returns=0.2)),
    ],
    ids=["plain", "rewards", "huber", "clipped", "clipped_huber", "as_terminated", "in_returns"],
)
def test_equals_numpy(options, numpy_options):
    for seed in range(3):
        agent, env_outputs, behaviour = random_batch(seed)
        assert env_outputs.abandoned[1:].any()
        loss = make_loss(
            agent,
            discount=0.97,
            frame_skip=3,
            baseline_cost=0.7,
            regularizer=KLPolicyRegularizer(entropy=0.2),
            **options,
        )
        value = loss(*arguments(env_outputs, behaviour))
        policy, values, entropy = numpy_loss(
            agent, env_outputs, behaviour, 0.97**3, **numpy_options
        )
        expected = policy + 0.7 * values + 0.2 * entropy
        assert value.shape == () and float(value) == pytest.approx(expected, rel=1e-4)


def test_no_value_loss_gradient_beyond_the_clip():
    """The derivative of the clipped value loss, by central differences."""
    agent, env_outputs, behaviour = random_batch(0)
    loss = make_loss(agent, value_ppo_style_clip_eps=0.3)
    args = arguments(env_outputs, behaviour)
    targets, advantages = loss.compute_advantages(*args)
    short = tf.nest.map_structure(lambda t: t[:-1], args)
    fixed = make_loss(
        TableAgent(agent.policy_logits[:-1], agent.baseline[:-1]), value_ppo_style_clip_eps=0.3
    )
    with tf.GradientTape() as tape:
        value = fixed(*short, targets, advantages)
    slopes = tape.gradient(value, fixed._agent.baseline).numpy()
    errors = (agent.baseline[:-1] - targets).numpy()
    change = agent.baseline.numpy()[:-1] - behaviour.baseline[:-1]
    clipped = behaviour.baseline[:-1] + np.clip(change, -0.3, 0.3) - targets.numpy()
    flat = (np.abs(change) > 0.3) & (clipped**2 > errors**2)
    assert flat.any() and not flat.all()
    np.testing.assert_allclose(slopes, np.where(flat, 0, 2 * errors / errors.size), atol=1e-6)


def test_abandoned_steps_leak_nothing():
    """Guards policy, value and entropy against the action that was never taken, even if infinite.

    Only the value of the state before it matters, which the step before bootstraps from.
    """
    agent, env_outputs, behaviour = random_batch(1)
    loss = make_loss(
        agent, policy_loss=policy_losses.ppo(0.2), regularizer=KLPolicyRegularizer(kl_pi_mu=0.5)
    )
    out = np.concatenate([env_outputs.abandoned[1:], np.zeros_like(env_outputs.done[:1])])
    assert out.any()

    def run(behaviour):
        with tf.GradientTape() as tape:
            value = loss(*arguments(env_outputs, behaviour))
        return value.numpy(), tape.gradient(value, [agent.policy_logits, agent.baseline])

    value, (policy_slopes, value_slopes) = run(behaviour)
    assert not policy_slopes.numpy()[out].any() and not value_slopes.numpy()[out].any()
    logits = np.where(out[..., None], np.float32([-np.inf, 0, -np.inf]), behaviour.policy_logits)
    dirty_value, slopes = run(behaviour._replace(policy_logits=logits.astype(np.float32)))
    assert dirty_value == pytest.approx(value, rel=1e-6)
    for dirty, clean in zip(slopes, (policy_slopes, value_slopes), strict=True):
        np.testing.assert_allclose(dirty, clean, atol=1e-7)


@pytest.mark.parametrize("properly", [True, False])
def test_unrolls_that_are_left_out(properly):
    """Guards against unrolls with NaN: all their steps are abandoned, and count for nothing."""
    agent, env_outputs, behaviour = random_batch(2)
    everything = np.zeros_like(env_outputs.done)
    everything[:, 3:] = True
    marked = env_outputs._replace(
        done=env_outputs.done | everything, abandoned=env_outputs.abandoned | everything
    )
    kept = tf.nest.map_structure(lambda t: t[:, :3], (env_outputs, behaviour))
    small = TableAgent(agent.policy_logits[:, :3], agent.baseline[:, :3])
    options = dict(
        handle_abandoned_episodes_properly=properly, regularizer=KLPolicyRegularizer(entropy=0.1)
    )
    with_them = make_loss(agent, **options)(*arguments(marked, behaviour))
    without = make_loss(small, **options)(*arguments(*kept))
    assert float(with_them) == pytest.approx(float(without), rel=1e-5)
    nothing = marked._replace(done=everything | True, abandoned=everything | True)
    assert float(make_loss(agent, **options)(*arguments(nothing, behaviour))) == 0.0


def test_a_state_after_a_terminated_episode_has_no_transition():
    """Guards vector environments that reset late, also if truncated episodes count as terminated:
    the state before `abandoned` is then masked only if it came with `done`.
    """
    done = np.array([[0, 0], [1, 0], [1, 1], [0, 0]], bool)
    abandoned = np.array([[0, 0], [0, 0], [1, 1], [0, 0]], bool)
    zeros = np.zeros((4, 2), np.float32)
    env_outputs = EnvOutput(zeros, done, zeros, abandoned, np.zeros((4, 2), np.int32))
    agent, _, _ = random_batch(0)
    masks = [
        make_loss(agent, handle_abandoned_episodes_properly=properly).mask(env_outputs).numpy()
        for properly in (True, False)
    ]
    np.testing.assert_array_equal(masks, [[[1, 1], [0, 0], [1, 1]], [[1, 1], [0, 1], [1, 1]]])


def test_known_advantages_give_the_same_loss():
    """Guards the two ways to call the loss: with unrolls, and with transitions."""
    agent, env_outputs, behaviour = random_batch(3)
    regularizer = KLPolicyRegularizer(entropy=LagrangeInequalityCoefficient(-0.5))
    loss = make_loss(agent, regularizer=regularizer)
    args = arguments(env_outputs, behaviour)
    with LoggingTape(loss) as logs:
        expected = loss(*args)
    targets, advantages, learned = loss.compute_advantages(*args, return_learner_outputs=True)
    np.testing.assert_array_equal(learned.baseline, agent.baseline[:-1])
    assert learned.policy_logits.shape == (*targets.shape, 3)
    short = TableAgent(learned.policy_logits, learned.baseline)
    known = make_loss(short, regularizer=regularizer)
    steps = tf.nest.map_structure(lambda t: t[:-1], args)
    with LoggingTape(known) as known_logs:
        value = known(*steps, targets, advantages, loss.mask(args[2]))
    assert float(value) == pytest.approx(float(expected), rel=1e-6)
    assert {k: float(v) for k, v in known_logs.items()} == pytest.approx(
        {k: float(v) for k, v in logs.items()}, rel=1e-5
    )


def test_popart_normalizes_targets_and_advantages():
    """With the statistics of the transitions made, and without a change of the values."""
    agent, env_outputs, behaviour = random_batch(7)
    args = arguments(env_outputs, behaviour)
    plain = make_loss(agent)
    targets, advantages = (t.numpy() for t in plain.compute_advantages(*args))
    taken = targets[plain.mask(args[2]).numpy() > 0]
    assert taken.size < targets.size
    popart = PopArt(EMAMeanStd(beta=1.0))
    loss = make_loss(agent, reward_normalizer=popart)
    loss.init()
    normalized_targets, normalized_advantages = loss.compute_advantages(*args)
    np.testing.assert_allclose(
        normalized_targets, (targets - taken.mean()) / taken.std(), rtol=1e-3, atol=1e-4
    )
    np.testing.assert_allclose(normalized_advantages, advantages / taken.std(), rtol=1e-3)
    corrected = popart.correct_prediction(agent.baseline)
    np.testing.assert_allclose(
        popart.unnormalize_prediction(corrected), agent.baseline, rtol=1e-4, atol=1e-5
    )
    with LoggingTape(loss) as logs:
        loss(*args, rewards=args[2].reward * np.float32(np.nan))  # Its step will be skipped.
    assert np.isnan(logs["losses/value"])
    assert np.isfinite(loss(*args)), "NaN is in the statistics"


def test_parts_with_the_arguments_of_their_interfaces():
    """Guards a user's policy loss and regularizer, which know neither masks nor logging."""
    agent, env_outputs, behaviour = random_batch(5)
    seen = []

    def policy_loss(advantages, target_action_log_probs, behaviour_action_log_probs):
        seen.append(advantages.shape)
        return tf.constant(1.0)

    def regularizer(distribution, target_action_logits, behaviour_action_logits, actions):
        seen.append(target_action_logits.shape)
        return tf.ones(actions.shape), tf.constant(10.0)

    loss = make_loss(agent, policy_loss=policy_loss, regularizer=regularizer, baseline_cost=0.0)
    assert float(loss(*arguments(env_outputs, behaviour))) == pytest.approx(12.0)
    assert seen == [(12, 5), (12, 5, 3)]


def test_init_reaches_all_parts():
    """Variables that wait for `init()` are created once the loss is complete."""
    coefficient = LagrangeInequalityCoefficient(0.1, init_variables=False)
    agent, env_outputs, behaviour = random_batch(6)
    loss = make_loss(agent, regularizer=KLPolicyRegularizer(kl_pi_mu=coefficient))
    assert loss.multipliers() == []
    loss.init()
    assert [v is coefficient.parameter for v in loss.multipliers()] == [True]
    assert np.isfinite(loss(*arguments(env_outputs, behaviour)))


def test_values_are_clipped_in_the_units_of_today():
    """With PopArt, values predicted when acting are converted to today's scale and shift."""
    agent, env_outputs, behaviour = random_batch(0)
    popart = PopArt(EMAMeanStd())
    popart.init()
    popart.scale.assign(2.0)
    popart.shift.assign(0.5)
    targets = advantages = np.random.default_rng(1).normal(size=(12, 5)).astype(np.float32)
    results = []
    for normalizer, factor, shift in ((popart, 1.0, 0.0), (None, 2.0, 0.5)):
        acted = behaviour.baseline * np.float32(factor) + np.float32(shift)
        args = arguments(env_outputs, behaviour._replace(baseline=acted))
        short = tf.nest.map_structure(lambda tensor: tensor[:-1], args)
        table = TableAgent(agent.policy_logits[:-1], agent.baseline[:-1] * factor + shift)
        loss = make_loss(table, reward_normalizer=normalizer, value_ppo_style_clip_eps=0.3)
        results.append(float(loss(*short, targets, advantages)))
    assert results[0] == pytest.approx(results[1], rel=1e-5)
