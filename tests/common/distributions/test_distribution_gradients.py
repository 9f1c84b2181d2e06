"""Gradients of distributions at their edges: forbidden actions, saturation."""

import math

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from seed_rl.common import parametric_distribution as pd
from seed_rl.common.distributions.spaces import get_parametric_distribution_for_action_space

FORBIDDEN = -math.inf
# Each row forbids something else; the last one all but one choice.
LOGITS = np.array(
    [
        [0.3, -1.2, FORBIDDEN, 0.9],
        [FORBIDDEN, 2.0, 0.1, 0.4],
        [FORBIDDEN, FORBIDDEN, 1.0, FORBIDDEN],
    ]
)


def allowed_softmax(logits):
    e = np.where(np.isfinite(logits), np.exp(logits), 0.0)
    return e / e.sum(-1, keepdims=True)


def numpy_entropy(logits):
    p = allowed_softmax(logits)
    return -(p * np.log(np.where(p > 0, p, 1.0))).sum()


def numpy_kl(logits, other):
    p, q = allowed_softmax(logits), allowed_softmax(other)
    return (p * np.log(np.where(p > 0, p, 1.0) / np.where(p > 0, q, 1.0))).sum()


def finite_differences(function, x):
    """The gradient of a scalar function; 0 where x is infinite, which no step changes."""
    gradient, step = np.zeros_like(x), 1e-6
    for index in np.ndindex(x.shape):
        if np.isfinite(x[index]):
            up, down = x.copy(), x.copy()
            up[index] += step
            down[index] -= step
            gradient[index] = (function(up) - function(down)) / (2 * step)
    return gradient


def gradient_of(function, *values):
    """(value, gradient for each of the arguments)."""
    variables = [tf.Variable(np.asarray(value, np.float32)) for value in values]
    with tf.GradientTape() as tape:
        value = function(*variables)
    return value.numpy(), [g.numpy() for g in tape.gradient(value, variables)]


def test_divergence_of_masked_choices_has_gradients():
    """Guards --kl_cost with masks that both policies share, for both of its arguments."""
    dist = pd.categorical_distribution(4, tf.int32)
    other = np.where(np.isfinite(LOGITS), 0.7 * LOGITS[:, ::-1].clip(-2, 2), FORBIDDEN)
    value, (mine, theirs) = gradient_of(
        lambda x, y: tf.reduce_sum(dist.kl_divergence(x, y)), LOGITS, other
    )
    assert value == pytest.approx(numpy_kl(LOGITS, other), rel=1e-4)
    expected = finite_differences(lambda x: numpy_kl(x, other), LOGITS)
    np.testing.assert_allclose(mine, expected, atol=1e-5)
    expected = finite_differences(lambda y: numpy_kl(LOGITS, y), other)
    np.testing.assert_allclose(theirs, expected, atol=1e-5)


def test_a_divergence_from_what_the_other_forbids_is_infinite():
    """Guards that the fix above does not hide a policy that may do what the other never does."""
    dist = pd.categorical_distribution(2, tf.int32)
    assert dist.kl_divergence([[0.0, 0.0]], [[0.0, FORBIDDEN]]).numpy() == [math.inf]
    assert dist.kl_divergence([[0.0, FORBIDDEN]], [[0.0, 0.0]]).numpy() == pytest.approx(
        math.log(2)
    )


def test_log_probability_of_allowed_choices_has_gradients():
    dist = pd.categorical_distribution(4, tf.int32)
    actions = np.array([3, 1, 2])
    value, (gradient,) = gradient_of(lambda x: tf.reduce_sum(dist.log_prob(x, actions)), LOGITS)
    one_hot = np.eye(4)[actions]
    assert value == pytest.approx(np.log(allowed_softmax(LOGITS)[one_hot > 0]).sum(), rel=1e-5)
    np.testing.assert_allclose(gradient, one_hot - allowed_softmax(LOGITS), atol=1e-6)


@pytest.mark.parametrize("sizes", [(3, 3), (2, 3)], ids=str)
def test_a_mask_that_forbids_a_whole_choice(sizes):
    """Guards the learner against actors: NaN in a loss would cost everyone's training steps."""
    dist = get_parametric_distribution_for_action_space(spaces.MultiDiscrete(sizes))
    logits = np.array([[FORBIDDEN] * sizes[0] + [0.2, FORBIDDEN, 1.0]])

    def loss(x):
        return tf.reduce_sum(dist.entropy(x) + dist.log_prob(x, tf.constant([[1, 2]])))

    value, (gradient,) = gradient_of(loss, logits)
    rest = logits[:, sizes[0] :]
    expected = numpy_entropy(rest) + np.log(allowed_softmax(rest)[0, 2])  # Of n: log n - log n.
    assert value == pytest.approx(float(expected), rel=1e-5)
    assert np.isfinite(gradient).all() and not gradient[:, : sizes[0]].any()


@pytest.mark.parametrize(
    ("sizes", "row"),
    [
        ((3, 3), [0.5, FORBIDDEN, -0.2, 0.2, FORBIDDEN, 1.0]),
        ((2, 3), [0.5, FORBIDDEN, 0.2, FORBIDDEN, 1.0]),
    ],
    ids=["alike", "of_two_sizes"],
)
def test_masks_in_several_choices_at_once(sizes, row):
    """Guards `MultiDiscrete` spaces, whose parts are summed before gradients are taken."""
    dist = get_parametric_distribution_for_action_space(spaces.MultiDiscrete(sizes))
    logits, actions = np.array([row]), [[0, 2]]
    halves = [slice(0, sizes[0]), slice(sizes[0], None)]

    def both(function):
        return lambda x: sum(function(x[:, half]) for half in halves)

    value, (gradient,) = gradient_of(lambda x: tf.reduce_sum(dist.entropy(x)), logits)
    assert value == pytest.approx(both(numpy_entropy)(logits), rel=1e-5)
    expected = finite_differences(both(numpy_entropy), logits)
    np.testing.assert_allclose(gradient, expected, atol=1e-5)
    other = logits * 0.5
    value, (gradient,) = gradient_of(
        lambda x: tf.reduce_sum(dist.kl_divergence(x, tf.constant(other, tf.float32))), logits
    )
    expected = finite_differences(
        lambda x: sum(numpy_kl(x[:, half], other[:, half]) for half in halves), logits
    )
    np.testing.assert_allclose(gradient, expected, atol=1e-5)
    value, (gradient,) = gradient_of(lambda x: tf.reduce_sum(dist.log_prob(x, actions)), logits)
    assert np.isfinite(value) and np.isfinite(gradient).all()


NOISE = np.array([[0.3, -0.8], [-1.2, 0.1], [0.6, 0.4], [-0.2, 1.5]])
SATURATED = np.array(  # Means, then logs of standard deviations.
    [[0.3, -0.2, -1.0, 0.5], [3.7, -3.0, -1.0, -0.5], [5.0, 5.0, 0.0, 0.5], [-12.0, 30.0, 0.0, 1.0]]
)
TANH = pd.ParametricDistribution(
    4, lambda p: pd.TanhNormal(p[..., :2], tf.exp(p[..., 2:])), (2,), reparametrizable=True
)


def normal_sample(params):
    return params[:, :2] + np.exp(params[:, 2:]) * NOISE


def tanh_log_density(params, x):
    """The sum of the log densities of tanh(x) in float64, x from normals."""
    log_std = params[:, 2:]
    z = (x - params[:, :2]) / np.exp(log_std)
    log_slope = 2 * (math.log(2) - np.abs(x) - np.log1p(np.exp(-2 * np.abs(x))))
    return float((-0.5 * z**2 - log_std - 0.5 * math.log(2 * math.pi) - log_slope).sum())


@pytest.mark.parametrize("differentiable", [True, False])
@pytest.mark.parametrize("joint", ["alone", "vector", "nest"])
def test_log_probability_of_a_saturated_sample_is_exact(joint, differentiable, monkeypatch):
    """Guards SAC: neither the log probability nor its gradient can be had from the action alone,
    which float32 rounds to 1. The gradient with respect to the mean is 2 far out, and brings a
    saturated policy back.
    """
    monkeypatch.setattr(tf.random, "normal", lambda shape, dtype: tf.constant(NOISE, dtype))
    family, unused = TANH, np.zeros((4, 0))
    if joint != "alone":
        choice = pd.categorical_distribution(3, tf.int32)
        family = pd.joint_distribution((choice, TANH), tf.float32 if joint == "vector" else None)
        unused = np.zeros((4, 3))
    params = np.concatenate([unused, SATURATED], axis=1)

    actions, _ = family(tf.constant(params, tf.float32)).sample_and_log_prob(differentiable)
    vector = tf.nest.flatten(actions)[-1][:, -2:]
    np.testing.assert_allclose(vector, np.tanh(normal_sample(SATURATED)), rtol=1e-5)

    value, (gradient,) = gradient_of(
        lambda p: tf.reduce_sum(family(p).sample_and_log_prob(differentiable)[1]), params
    )
    fixed = normal_sample(SATURATED)
    choices = 0.0 if joint == "alone" else 4 * math.log(3)
    assert value == pytest.approx(tanh_log_density(SATURATED, fixed) - choices, rel=1e-5)
    expected = finite_differences(
        lambda p: tanh_log_density(p, normal_sample(p) if differentiable else fixed), SATURATED
    )
    np.testing.assert_allclose(gradient[:, -4:], expected, rtol=1e-3, atol=1e-4)
    if differentiable:
        np.testing.assert_allclose(gradient[-1, -4:-2], [-2, 2], rtol=1e-5)
