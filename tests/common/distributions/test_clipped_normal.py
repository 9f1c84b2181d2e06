"""Entropy and divergence of clipped normals, against numerical integration and sampling.

Both are of the clipped variable: a density inside of [-1, 1] and a probability at each bound.
"""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from scipy.integrate import trapezoid

from seed_rl.common.distributions.continuous import ClippedNormal

LOCS, SCALES = (-3.0, -1.0, -0.2, 0.0, 0.9, 2.0), (0.05, 0.4, 1.0, 20.0)
CASES = list(itertools.product(LOCS, SCALES))


def made(cases):
    loc, scale = (tf.constant(column, tf.float32)[:, None] for column in zip(*cases, strict=True))
    return ClippedNormal(loc, scale)


def parts(loc, scale):
    """(points, density there <float64>[n], probabilities at the two bounds), in float64."""
    near = np.clip(loc + scale * np.linspace(-9, 9, 40001), -1, 1)
    points = np.unique(np.concatenate([np.linspace(-1, 1, 4001), near]))
    z = (points - loc) / scale
    density = np.exp(-0.5 * z**2) / (scale * math.sqrt(2 * math.pi))
    bounds = [0.5 * math.erfc((1 + sign * loc) / scale / math.sqrt(2)) for sign in (1, -1)]
    return points, density, np.array(bounds)


def plogp(p, q=None):
    """p log p, or p log(p / q); 0 where p is 0."""
    ratio = p if q is None else p / np.where(p > 0, q, 1.0)
    return p * np.log(np.where(p > 0, ratio, 1.0))


def integrated_entropy(loc, scale):
    points, density, bounds = parts(loc, scale)
    return -trapezoid(plogp(density), points) - plogp(bounds).sum()


def test_entropy_equals_integration():
    expected = [integrated_entropy(*case) for case in CASES]
    np.testing.assert_allclose(made(CASES).entropy(), expected, rtol=1e-4, atol=1e-5)


def test_entropy_is_the_mean_surprise_of_samples():
    """Guards that entropy and log probability refer to the same measure."""
    tf.random.set_seed(0)
    for case in [(0.9, 0.7), (-0.3, 0.2), (2.0, 1.5)]:
        dist = made([case] * 100_000)
        surprise = -dist.log_prob(dist.sample()).numpy()
        error = surprise.std() / math.sqrt(len(surprise))
        assert dist.entropy().numpy()[0] == pytest.approx(surprise.mean(), abs=float(4 * error))


def test_divergence_equals_integration():
    pairs = [(a, b) for a, b in itertools.product(CASES, CASES) if b[1] >= 0.4]
    expected = []
    for a, b in pairs:
        points, density, bounds = parts(*a)
        z = (points - b[0]) / b[1]
        log_other = -0.5 * z**2 - math.log(b[1] * math.sqrt(2 * math.pi))
        inside = trapezoid(plogp(density) - density * log_other, points)
        expected.append(inside + plogp(bounds, parts(*b)[2]).sum())
    actual = made([a for a, _ in pairs]).kl_divergence(made([b for _, b in pairs])).numpy()
    np.testing.assert_allclose(actual, expected, rtol=2e-3, atol=2e-4)
    assert actual.min() > -1e-4


def test_what_is_clipped_alike_does_not_differ():
    """Guards --kl_cost from means far outside, whose actions are the same."""
    far, farther = made([(3.0, 0.05)]), made([(4.0, 0.05)])
    np.testing.assert_allclose(far.kl_divergence(farther), [0.0], atol=1e-6)
    np.testing.assert_allclose(far.entropy(), [0.0], atol=1e-6)


def test_components_add_up():
    loc, scale = tf.constant([[0.9, -0.3]]), tf.constant([[0.5, 0.2]])
    both, one, other = (
        ClippedNormal(loc[:, part], scale[:, part])
        for part in (slice(None), slice(0, 1), slice(1, 2))
    )
    np.testing.assert_allclose(both.entropy(), one.entropy() + other.entropy(), rtol=1e-6)


def test_gradients_are_finite_and_right():
    """Guards training with diverged means and deviations, and recovery from them."""
    extreme = [
        *itertools.product([-1e4, -30.0, -1.0, 0.0, 1.0, 5.0, 1e4], [1e-6, 1e-3, 1.0, 1e3, 1e6])
    ]
    loc, scale = (tf.Variable(t) for t in (made(extreme).loc, made(extreme).scale))
    with tf.GradientTape(persistent=True) as tape:
        dist = ClippedNormal(loc, scale)
        entropy = dist.entropy()
        divergence = dist.kl_divergence(ClippedNormal(0.5 * loc, 2.0 * scale))
        reverse = ClippedNormal(tf.stop_gradient(0.5 * loc), tf.stop_gradient(2.0 * scale))
        reverse = reverse.kl_divergence(dist)
    for value in (entropy, divergence, reverse):
        assert np.isfinite(value).all()
        for gradient in tape.gradient(value, [loc, scale], unconnected_gradients="zero"):
            assert np.isfinite(gradient).all()

    step = 1e-4
    for case in [(0.9, 0.7), (-0.3, 0.2), (2.0, 1.5)]:
        loc, scale = (tf.Variable(t) for t in (made([case]).loc, made([case]).scale))
        with tf.GradientTape() as tape:
            entropy = ClippedNormal(loc, scale).entropy()
        by_loc, by_scale = (g.numpy().item() for g in tape.gradient(entropy, [loc, scale]))
        for actual, moved in ((by_loc, (step, 0.0)), (by_scale, (0.0, step))):
            up = integrated_entropy(case[0] + moved[0], case[1] + moved[1])
            down = integrated_entropy(case[0] - moved[0], case[1] - moved[1])
            assert actual == pytest.approx((up - down) / (2 * step), abs=1e-3)


def test_log_probabilities_of_samples_have_the_gradient_of_the_entropy():
    """Guards SAC: through a sample, the jump of the log probability at a bound has no gradient."""
    loc, scale = (tf.Variable(t) for t in (made(CASES).loc, made(CASES).scale))
    with tf.GradientTape(persistent=True) as tape:
        dist = ClippedNormal(loc, scale)
        actions, log_prob = dist.sample_and_log_prob()
        expected = -dist.entropy()
    np.testing.assert_allclose(log_prob, dist.log_prob(actions), rtol=1e-5, atol=1e-6)
    for variable in (loc, scale):
        gradient = tape.gradient(log_prob, variable)
        np.testing.assert_allclose(gradient, tape.gradient(expected, variable), rtol=1e-6)
