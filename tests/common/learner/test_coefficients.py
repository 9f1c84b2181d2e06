"""Coefficients of loss terms: values, gradients and bounds."""

import math

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.learner.coefficients import FixedCoefficient, LagrangeInequalityCoefficient


def gradient_of_adjustment(coefficient, x):
    with tf.GradientTape() as tape:
        loss = coefficient.adjustment_loss(tf.constant(x))
    return tape.gradient(loss, coefficient.parameter).numpy()


def test_a_fixed_coefficient_only_scales():
    coefficient = FixedCoefficient(0.3)
    coefficient.init()
    assert coefficient().numpy() == pytest.approx(0.3)
    assert coefficient.adjustment_loss(tf.constant([math.inf])).numpy() == 0.0
    np.testing.assert_allclose(coefficient.scale_loss(tf.constant([1.0, 2.0])), [0.3, 0.6])
    assert not coefficient.variables


@pytest.mark.parametrize("speed", [0.5, 10.0])
def test_the_multiplier_is_an_exponential(speed):
    """Value, loss and gradient against the formula."""
    coefficient = LagrangeInequalityCoefficient(0.2, init_alpha=3.0, adjustment_speed=speed)
    assert coefficient().numpy() == pytest.approx(3.0, rel=1e-5)
    assert coefficient.parameter.numpy() == pytest.approx(math.log(3.0) / speed)
    x = [0.1, 0.7]
    loss = coefficient.adjustment_loss(tf.constant(x))
    assert loss.numpy() == pytest.approx(3.0 * (0.2 - 0.4), rel=1e-4)
    expected = speed * 3.0 * (0.2 - 0.4)
    assert gradient_of_adjustment(coefficient, x) == pytest.approx(expected, rel=1e-4)


def test_network_and_multiplier_do_not_train_each_other():
    coefficient = LagrangeInequalityCoefficient(0.2, init_alpha=3.0)
    x = tf.Variable([0.1, 0.7])
    with tf.GradientTape(persistent=True) as tape:
        adjustment, scaled = coefficient.adjustment_loss(x), coefficient.scale_loss(x)
    assert tape.gradient(adjustment, x) is None
    assert tape.gradient(scaled, coefficient.parameter) is None
    np.testing.assert_allclose(tape.gradient(scaled, x), [3.0, 3.0], rtol=1e-5)


def test_a_constraint_is_met_at_its_threshold():
    """Minimizes (x - 3)^2 subject to x <= 1: the multiplier must become 2 (3 - 1) = 4."""
    coefficient = LagrangeInequalityCoefficient(1.0)
    x = tf.Variable(0.0)
    variables = [x, coefficient.parameter]
    optimizer = tf.keras.optimizers.SGD(0.02)
    optimizer.build(variables)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.square(x - 3) + coefficient.scale_loss(x) + coefficient.adjustment_loss(x)
        optimizer.apply(tape.gradient(loss, variables), variables)

    for _ in range(1500):
        step()
    assert x.numpy() == pytest.approx(1.0, abs=0.01)
    assert coefficient().numpy() == pytest.approx(4.0, rel=0.02)


@pytest.mark.parametrize("parameter, bound, back, out", [(50.0, 8.0, 0.0, 2.0), (-50, 0.5, 2, 0)])
def test_gradients_lead_back_inside_and_no_further_out(parameter, bound, back, out):
    """Guards overflow, multipliers stuck at a bound, and ones far outside it."""
    coefficient = LagrangeInequalityCoefficient(1.0, alpha_range=(0.5, 8.0), adjustment_speed=20.0)
    coefficient.parameter.assign(parameter)
    assert coefficient().numpy() == pytest.approx(bound)
    expected = 20.0 * bound * (1.0 - back)
    assert gradient_of_adjustment(coefficient, float(back)) == pytest.approx(expected)
    assert np.sign(expected) == np.sign(parameter)
    assert gradient_of_adjustment(coefficient, float(out)) == 0.0


def test_the_variable_may_be_created_later_and_is_in_checkpoints(tmp_path):
    first = LagrangeInequalityCoefficient(1.0, init_alpha=2.0, init_variables=False)
    with pytest.raises(ValueError, match="init"):
        first()
    first.init()
    first.parameter.assign(-0.5)
    first.init()  # Changes nothing: every part of a loss may ask for it.
    path = tf.train.Checkpoint(c=first).write(str(tmp_path / "checkpoint"))
    second = LagrangeInequalityCoefficient(1.0)
    tf.train.Checkpoint(c=second).read(path).assert_consumed()
    assert second().numpy() == pytest.approx(math.exp(-0.5))


@pytest.mark.parametrize(
    "options", [{"init_alpha": 0.0}, {"alpha_range": (0.0, 1.0)}, {"adjustment_speed": 0.0}]
)
def test_a_multiplier_must_be_positive(options):
    with pytest.raises(ValueError, match="Lagrange multiplier"):
        LagrangeInequalityCoefficient(1.0, **options)
