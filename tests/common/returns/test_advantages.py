"""Advantage estimators against plain loops, with episodes that end and are cut anywhere."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.returns import advantages

GAMMA = 0.9


def random_steps(seed, num_steps, ends=None):
    """`ends` has 't' (terminated), 'a' (abandoned) or '.' per step; by default random ones."""
    rng = np.random.default_rng(seed)
    if ends is None:
        ends = rng.choice(list("ta......"), (num_steps, 6))
    shape = num_steps, batch = ends.shape
    return dict(
        values=rng.normal(size=(num_steps + 1, batch)).astype(np.float32),
        rewards=rng.normal(size=shape).astype(np.float32),
        done_terminated=ends == "t",
        done_abandoned=ends == "a",
        discount_factor=GAMMA,
        target_action_log_probs=rng.normal(size=shape).astype(np.float32),
        behaviour_action_log_probs=rng.normal(size=shape).astype(np.float32),
    )


def loop_vtrace(steps, lambda_, max_weight, on_policy=False):
    """One environment and one step at a time; ends of episodes by `if`s."""
    values, rewards = steps["values"].astype(np.float64), steps["rewards"]
    targets, gains = np.zeros(rewards.shape), np.zeros(rewards.shape)
    for b in range(rewards.shape[1]):
        later = 0.0
        for t in reversed(range(len(rewards))):
            if steps["done_abandoned"][t, b]:
                later = 0.0
                targets[t, b], gains[t, b] = values[t, b], 0.0
                continue
            if steps["done_terminated"][t, b]:
                gain = rewards[t, b] - values[t, b]
            else:
                gain = rewards[t, b] + GAMMA * values[t + 1, b] - values[t, b]
                gain += GAMMA * lambda_ * later
            log_rho = (
                steps["target_action_log_probs"][t, b] - steps["behaviour_action_log_probs"][t, b]
            )
            rho = 1.0 if on_policy else np.exp(log_rho)
            later = (rho if max_weight is None else min(rho, max_weight)) * gain
            targets[t, b], gains[t, b] = values[t, b] + later, gain
    return targets, gains


def loop_n_step(steps, n):
    """Looks ahead from each step, until something ends."""
    values, rewards = steps["values"].astype(np.float64), steps["rewards"]
    targets = np.zeros(rewards.shape)
    for t, b in np.ndindex(*rewards.shape):
        total, weight = 0.0, 1.0
        for ahead in range(t, t + n + 1):
            cut = ahead == t + n or ahead == len(rewards) or steps["done_abandoned"][ahead, b]
            if cut:
                total += weight * values[ahead, b]
                break
            total += weight * rewards[ahead, b]
            weight *= GAMMA
            if steps["done_terminated"][ahead, b]:
                break
        targets[t, b] = total
    return targets, targets - values[:-1]


def assert_equal(actual, expected):
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == tf.float32
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("lambda_, max_weight", [(1.0, 1.0), (0.8, 1.7), (0.5, None), (0.0, 0.3)])
@pytest.mark.parametrize("num_steps", [1, 2, 13])
def test_vtrace_equals_a_loop(num_steps, lambda_, max_weight):
    steps = random_steps(num_steps, num_steps)
    expected = loop_vtrace(steps, lambda_, max_weight)
    assert_equal(advantages.VTrace(lambda_, max_weight)(**steps), expected)


@pytest.mark.parametrize("lambda_", [0.0, 0.7, 1.0])
def test_gae_equals_a_loop_whatever_the_policies(lambda_):
    steps = random_steps(0, 13)
    expected = loop_vtrace(steps, lambda_, None, on_policy=True)
    assert_equal(advantages.GAE(lambda_)(**steps), expected)
    without = {name: value for name, value in steps.items() if "log_probs" not in name}
    assert_equal(advantages.gae(**without, lambda_=lambda_), expected)


@pytest.mark.parametrize("n", [1, 2, 5, 100])
def test_n_step_equals_a_loop(n):
    steps = random_steps(n, 13)
    assert steps["done_abandoned"].any() and steps["done_terminated"].any()
    assert_equal(advantages.NStep(n)(**steps), loop_n_step(steps, n))


def test_episodes_may_end_in_every_position_and_way():
    """Guards the first and last step, and ends that follow one another, exhaustively."""
    ends = np.array(list(itertools.product("ta.", repeat=4))).T
    steps = random_steps(7, 4, ends)
    assert_equal(advantages.VTrace(0.9)(**steps), loop_vtrace(steps, 0.9, 1.0))
    assert_equal(advantages.NStep(2)(**steps), loop_n_step(steps, 2))


def test_an_abandoned_step_may_have_any_number_in_it():
    """Its action was ignored and its reward is unused: even NaN must not spread."""
    steps = random_steps(3, 5, np.array(list("..a.."))[:, None])
    expected = {e: e(**steps) for e in (advantages.VTrace(0.9, None), advantages.NStep(3))}
    steps["rewards"][2] = np.nan
    steps["values"][3] += 100.0  # The next episode's first state.
    steps["target_action_log_probs"][2] = 1000.0
    steps["behaviour_action_log_probs"][2] = -np.inf
    for estimator, before in expected.items():
        for one, other in zip(estimator(**steps), before, strict=True):
            np.testing.assert_array_equal(one[:3], other[:3])
            assert np.isfinite(one).all()
        assert estimator(**steps)[0][2] == steps["values"][2]


ESTIMATORS = [advantages.GAE(0.9), advantages.VTrace(0.9), advantages.NStep(2)]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_no_gradient_flows(estimator):
    steps = {k: tf.constant(v) for k, v in random_steps(0, 5).items()}
    inputs = [v for v in steps.values() if v.dtype == tf.float32]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        total = tf.add_n([tf.reduce_sum(result) for result in estimator(**steps)])
    assert all(gradient is None for gradient in tape.gradient(total, inputs))


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("name", ["rewards", "done_terminated", "done_abandoned"])
def test_a_stray_dimension_is_refused(estimator, name):
    """[T, B, 1] against [T, B] would broadcast without this check."""
    steps = random_steps(0, 4)
    steps[name] = steps[name][..., None]
    with pytest.raises(ValueError, match=name):
        estimator(**steps)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_an_unknown_number_of_steps_gives_the_same(estimator):
    steps = {k: tf.constant(v) for k, v in random_steps(2, 6).items()}
    spec = {k: tf.TensorSpec([None] * v.shape.rank, v.dtype) for k, v in steps.items()}
    unknown = tf.function(lambda kwargs: estimator(**kwargs), input_signature=[spec])
    assert_equal(unknown(steps), estimator(**steps))


def test_n_step_needs_a_step():
    with pytest.raises(ValueError, match="at least 1"):
        advantages.NStep(0)
