"""Regularizers against closed forms, and the direction in which constraints move them."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import softmax

from seed_rl.agents.policy_gradient.modules.logging_module import LoggingTape
from seed_rl.agents.policy_gradient.modules.policy_regularizers import KLPolicyRegularizer
from seed_rl.common.errors import UserError
from seed_rl.common.learner.coefficients import FixedCoefficient, LagrangeInequalityCoefficient
from seed_rl.common.parametric_distribution import categorical_distribution

DISTRIBUTION = categorical_distribution(3, tf.int32)


def logits():
    rng = np.random.default_rng(0)
    return [rng.normal(size=(4, 2, 3)).astype(np.float32) for _ in range(2)]


def closed_forms(pi_logits, mu_logits):
    pi, mu = softmax(pi_logits, -1), softmax(mu_logits, -1)
    uniform = np.full_like(pi, 1 / 3)
    return {
        "kl_pi_mu": np.sum(pi * np.log(pi / mu), -1),
        "kl_mu_pi": np.sum(mu * np.log(mu / pi), -1),
        "kl_ref_pi": np.sum(uniform * np.log(uniform / pi), -1),
        "entropy": np.sum(pi * np.log(pi), -1),  # Negated.
    }


@pytest.mark.parametrize("key", ["kl_pi_mu", "kl_mu_pi", "kl_ref_pi", "entropy"])
@pytest.mark.parametrize("fixed", [0.3, FixedCoefficient(0.3)], ids=["number", "coefficient"])
def test_equals_closed_form(key, fixed):
    pi, mu = logits()
    regularizer = KLPolicyRegularizer(**{key: fixed})
    with LoggingTape(regularizer) as logs:
        penalty, adjustment = regularizer(DISTRIBUTION, pi, mu, None)
    expected = closed_forms(pi, mu)[key]
    np.testing.assert_allclose(penalty, 0.3 * expected, rtol=1e-4, atol=1e-6)
    assert float(adjustment) == 0.0
    sign = -1 if key == "entropy" else 1
    assert list(logs) == [f"policy/{key}"]
    assert float(logs[f"policy/{key}"]) == pytest.approx(sign * expected.mean(), rel=1e-4)


@pytest.mark.parametrize("key", ["kl_pi_mu", "kl_mu_pi", "kl_ref_pi", "entropy"])
def test_masked_actions_have_no_part(key):
    """Penalties and gradients are those of a distribution over the other actions."""
    pi, mu = logits()
    forbidden = np.full((4, 2, 1), -np.inf, np.float32)
    small = categorical_distribution(2, tf.int32)

    def gradient(distribution, pi, mu):
        pi = tf.constant(pi)
        with tf.GradientTape() as tape:
            tape.watch(pi)
            penalty, _ = KLPolicyRegularizer(**{key: 1.0})(distribution, pi, mu, None)
        return penalty, tape.gradient(penalty, pi)

    masked = [np.concatenate([x[..., :1], forbidden, x[..., 1:2]], -1) for x in (pi, mu)]
    penalty, slopes = gradient(DISTRIBUTION, *masked)
    expected, expected_slopes = gradient(small, pi[..., :2], mu[..., :2])
    np.testing.assert_allclose(penalty, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(slopes.numpy()[..., [0, 2]], expected_slopes, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(slopes[..., 1], np.zeros((4, 2)))


def test_penalties_add_up():
    pi, mu = logits()
    penalty, _ = KLPolicyRegularizer(kl_pi_mu=2.0, entropy=0.5)(DISTRIBUTION, pi, mu, None)
    forms = closed_forms(pi, mu)
    np.testing.assert_allclose(penalty, 2 * forms["kl_pi_mu"] + 0.5 * forms["entropy"], rtol=1e-4)


@pytest.mark.parametrize("direction", [1, -1])
def test_constraints_move_their_weight(direction):
    """The weight grows while the mean over the steps that count is above the threshold."""
    pi, mu = logits()
    mask = np.float32([[1, 0], [1, 1], [0, 0], [1, 1]])
    mean = closed_forms(pi, mu)["kl_mu_pi"][mask > 0].mean()
    constraint = LagrangeInequalityCoefficient(mean - 0.01 * direction, adjustment_speed=2.0)
    regularizer = KLPolicyRegularizer(kl_mu_pi=constraint)
    with tf.GradientTape() as tape:
        _, adjustment = regularizer(DISTRIBUTION, pi, mu, None, mask=mask)
    (slope,) = tape.gradient(adjustment, regularizer.trainable_variables)
    # Descent: against the slope, which is speed * weight * (threshold - mean).
    assert float(slope) == pytest.approx(-0.02 * direction, rel=1e-2)


def test_an_entropy_constraint_is_a_lower_bound():
    """Guards the sign: entropy below the target raises the weight of the bonus."""
    pi, mu = logits()
    entropy = -closed_forms(pi, mu)["entropy"].mean()
    for target, sign in ((entropy + 0.1, -1), (entropy - 0.1, 1)):
        regularizer = KLPolicyRegularizer(entropy=LagrangeInequalityCoefficient(-target))
        with tf.GradientTape() as tape:
            _, adjustment = regularizer(DISTRIBUTION, pi, mu, None)
        (slope,) = tape.gradient(adjustment, regularizer.trainable_variables)
        assert np.sign(slope.numpy()) == sign


def test_masked_and_unweighted_infinities():
    """Guards against 0 times infinity: of steps that do not count, and of a coefficient of 0."""
    pi, mu = logits()
    mu[0, 0, 0] = -np.inf  # KL(pi || mu) is infinite there.
    mask = np.ones((4, 2), np.float32)
    mask[0, 0] = 0
    penalty, _ = KLPolicyRegularizer(kl_pi_mu=1.0)(DISTRIBUTION, pi, mu, None, mask=mask)
    assert np.isfinite(penalty).all() and float(penalty[0, 0]) == 0.0
    penalty, _ = KLPolicyRegularizer(kl_pi_mu=0.0)(DISTRIBUTION, pi, mu, None)
    np.testing.assert_array_equal(penalty, np.zeros((4, 2)))


def test_without_logging():
    """Guards a second call within a training step, whose keys would be logged twice."""
    pi, mu = logits()
    regularizer = KLPolicyRegularizer(entropy=1.0)
    with LoggingTape(regularizer) as logs:
        regularizer(DISTRIBUTION, pi, mu, None)
        regularizer(DISTRIBUTION, pi, mu, None, with_logging=False)
    assert list(logs) == ["policy/entropy"]


def test_unknown_penalties():
    with pytest.raises(UserError, match="no coefficient kl_mu_ref; it has kl_pi_mu, kl_mu_pi"):
        KLPolicyRegularizer(kl_mu_ref=1.0)
