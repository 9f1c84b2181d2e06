"""Weights of loss terms: fixed, or adjusted so that a quantity stays below a threshold.

A loss with a regularizer x and its coefficient c is

    loss += c.scale_loss(x) + c.adjustment_loss(x)

where the first trains the network and the second the coefficient.
"""

from __future__ import annotations

import math

import tensorflow as tf


class Coefficient(tf.Module):
    """Weight of a loss term."""

    def init(self) -> None:
        """Creates variables that the constructor did not; before the first use and any restore."""

    def __call__(self) -> tf.Tensor:
        """The weight, <float32>[]."""
        raise NotImplementedError

    def adjustment_loss(self, reference_value: tf.Tensor) -> tf.Tensor:
        """A loss <float32>[] that trains the coefficient.

        Args:
          reference_value: <float32>[...] what the coefficient controls; its mean counts. No
            gradient flows into it.
        """
        raise NotImplementedError

    def scale_loss(self, unscaled_loss: tf.Tensor) -> tf.Tensor:
        """`unscaled_loss` <float32>[...] times the weight; this does not train the weight."""
        return tf.stop_gradient(self()) * unscaled_loss


class FixedCoefficient(Coefficient):
    """A constant."""

    def __init__(self, value: float):
        """`value` is the weight."""
        super().__init__()
        self.value = value

    def __call__(self) -> tf.Tensor:
        return tf.constant(self.value, tf.float32)

    def adjustment_loss(self, reference_value: tf.Tensor) -> tf.Tensor:
        del reference_value
        return tf.constant(0.0)


class LagrangeInequalityCoefficient(Coefficient):
    """Lagrange multiplier of the constraint that a quantity's mean is at most `threshold`.

    It grows while the mean is above the threshold, and falls while it is below. The optimizer of
    the network trains it; the variable `parameter` is the logarithm of the weight divided by
    `adjustment_speed`. So the weight stays positive, and an optimizer that moves each variable by
    about the learning rate changes the weight by a factor of about 1 ± learning rate * speed. Adam
    moves a falling weight by less, whose gradients shrink with it; divided by the weight, as in
    `sac.losses`, they do not.
    """

    def __init__(
        self,
        threshold: float,
        init_alpha: float = 1.0,
        alpha_range: tuple[float, float] = (1e-6, 1e6),
        adjustment_speed: float = 1.0,
        init_variables: bool = True,
    ):
        """Creates the variable; do so in the scope of the training strategy.

        Args:
          threshold: upper bound of the quantity.
          init_alpha: initial weight.
          alpha_range: bounds of the weight.
          adjustment_speed: relative to the learning rate.
          init_variables: whether to create the variable now; if not, call `init` before the first
            use and before a checkpoint is restored.

        Raises:
          ValueError: a weight, bound or speed that is not positive, or bounds in the wrong order.
        """
        super().__init__()
        low, high = alpha_range
        if not (0 < low <= high and init_alpha > 0 and adjustment_speed > 0):
            raise ValueError(
                "A Lagrange multiplier needs 0 < alpha_range[0] <= alpha_range[1], init_alpha > 0 "
                f"and adjustment_speed > 0, got {alpha_range}, {init_alpha} and {adjustment_speed}."
            )
        self.threshold = threshold
        self._initial = math.log(init_alpha) / adjustment_speed
        self._range = (low, high)
        self._speed = adjustment_speed
        self.parameter: tf.Variable | None = None
        if init_variables:
            self.init()

    def init(self) -> None:
        if self.parameter is None:
            self.parameter = tf.Variable(self._initial, dtype=tf.float32, name="parameter")

    def __call__(self) -> tf.Tensor:
        if self.parameter is None:
            raise ValueError("Call init() before the first use of a coefficient.")
        return bounded_exp(self._speed * self.parameter, *self._range)

    def adjustment_loss(self, reference_value: tf.Tensor) -> tf.Tensor:
        return self() * tf.stop_gradient(self.threshold - tf.reduce_mean(reference_value))


def bounded_exp(log_value: tf.Tensor, low: float, high: float) -> tf.Tensor:
    """exp(log_value) within [low, high], for multipliers trained by gradient descent.

    Outside the bounds, a gradient that leads back inside is that at the bound, and one that leads
    further out is zero: so a constraint that has long been met does not drive the logarithm so far
    away that the multiplier would take equally long to come back.

    Args:
      log_value: <float32>[...].
      low: smallest value, above 0.
      high: largest value.
    """

    @tf.custom_gradient
    def bounded(x: tf.Tensor) -> tuple[tf.Tensor, object]:
        value = tf.exp(tf.clip_by_value(x, math.log(low), math.log(high)))

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            # Descent moves against the gradient.
            above, below = x > math.log(high), x < math.log(low)
            outwards = (above & (upstream < 0)) | (below & (upstream > 0))
            return tf.where(outwards, 0.0, upstream * value)

        return value, gradient

    return bounded(log_value)
