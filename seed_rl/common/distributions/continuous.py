"""Distributions over vectors of real numbers, mostly in [-1, 1]."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from seed_rl.common import random_numbers
from seed_rl.common.distributions.base import Distribution, ParametricDistribution

StdFn = Callable[[tf.Tensor], tf.Tensor]
"""Maps a network output of any sign to a positive standard deviation, elementwise."""

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_FARTHEST = 20.0  # In standard deviations: the mass of the tail beyond it underflows float32.


class Normal(Distribution):
    """A vector of independent normals."""

    def __init__(self, loc: tf.Tensor, scale: tf.Tensor):
        """Creates the distributions.

        Args:
          loc: <float32>[..., n], means.
          scale: <float32>[..., n], standard deviations.
        """
        self.loc = loc
        self.scale = scale

    def sample(self) -> tf.Tensor:
        return self.loc + self.scale * random_numbers.normal(tf.shape(self.loc), self.loc.dtype)

    def mode(self) -> tf.Tensor:
        return self.loc

    def log_prob(self, actions: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(self._elementwise_log_prob(actions), axis=-1)

    def entropy(self) -> tf.Tensor:
        return tf.reduce_sum(self._elementwise_entropy(), axis=-1)

    def kl_divergence(self, other: Normal) -> tf.Tensor:
        ratio = self.scale / other.scale
        distance = (self.loc - other.loc) / other.scale
        return tf.reduce_sum(
            0.5 * (tf.square(ratio) + tf.square(distance) - 1.0) - tf.math.log(ratio), axis=-1
        )

    def _elementwise_log_prob(self, x: tf.Tensor) -> tf.Tensor:
        z = (x - self.loc) / self.scale
        return -0.5 * tf.square(z) - tf.math.log(self.scale) - _HALF_LOG_2PI

    def _elementwise_entropy(self) -> tf.Tensor:
        return 0.5 + _HALF_LOG_2PI + tf.math.log(self.scale)


class ClippedNormal(Normal):
    """A normal whose samples are clipped to [-1, 1]: a censored normal.

    Between the bounds, the log probability is the log density of the normal; at a bound, it is the
    log probability of the whole tail that was clipped to it, so policy gradient and importance
    weights are correct there too. Entropy and divergence are also those of the clipped variable,
    with respect to the same measure: length between the bounds plus unit mass at each bound. With a
    mean far outside the bounds, all actions are the same and the entropy is 0.
    """

    def sample(self) -> tf.Tensor:
        return tf.clip_by_value(super().sample(), -1.0, 1.0)

    def sample_and_log_prob(self, differentiable: bool = True) -> tuple[tf.Tensor, tf.Tensor]:
        actions, log_prob = super().sample_and_log_prob(differentiable)
        if differentiable:
            # At the bounds, a density becomes a mass: the gradient through the sample misses that
            # jump, which moves with the parameters. That of the entropy is exact.
            entropy = self.entropy()
            log_prob = tf.stop_gradient(log_prob + entropy) - entropy
        return actions, log_prob

    def mode(self) -> tf.Tensor:
        return tf.clip_by_value(self.loc, -1.0, 1.0)

    def log_prob(self, actions: tf.Tensor) -> tf.Tensor:
        actions = tf.convert_to_tensor(actions, self.loc.dtype)
        log_prob = self._elementwise_log_prob(actions)
        left = log_normal_tail((1.0 + self.loc) / self.scale)
        right = log_normal_tail((1.0 - self.loc) / self.scale)
        log_prob = tf.where(actions <= -1.0, left, log_prob)
        log_prob = tf.where(actions >= 1.0, right, log_prob)
        return tf.reduce_sum(log_prob, axis=-1)

    def entropy(self) -> tf.Tensor:
        inside, _, square = self._moments()
        # The mean of -log density between the bounds and of -log probability at the bounds.
        surprise = inside * (tf.math.log(self.scale) + _HALF_LOG_2PI) + 0.5 * square
        at_bounds = tf.add_n([tf.exp(log_p) * log_p for log_p in self._log_masses(_FARTHEST)])
        return tf.reduce_sum(surprise - at_bounds, axis=-1)

    def kl_divergence(self, other: Normal) -> tf.Tensor:
        assert isinstance(other, ClippedNormal)
        inside, first, square = self._moments()
        ratio = self.scale / other.scale
        distance = (self.loc - other.loc) / other.scale
        # A z-score z of `self` is the z-score distance + ratio * z of `other`.
        squares = (
            tf.square(distance) * inside
            + 2.0 * distance * ratio * first
            + tf.square(ratio) * square
        )
        between = 0.5 * (squares - square) - tf.math.log(ratio) * inside
        log_masses = zip(self._log_masses(_FARTHEST), other._log_masses(), strict=True)
        at_bounds = tf.add_n([tf.exp(log_p) * (log_p - log_q) for log_p, log_q in log_masses])
        return tf.reduce_sum(between + at_bounds, axis=-1)

    def _log_masses(self, farthest: float = 1e15) -> tuple[tf.Tensor, tf.Tensor]:
        """Log probabilities <float32>[..., n] of the lower and the upper bound.

        Args:
          farthest: limit on the distance of a bound from the mean, in standard deviations, so that
            its square does not overflow.
        """
        return tuple(
            log_normal_tail(tf.clip_by_value((1.0 + side) / self.scale, -farthest, farthest))
            for side in (self.loc, -self.loc)
        )

    def _moments(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Integrals <float32>[..., n] of 1, z and z^2 between the bounds.

        z is the distance from the mean in standard deviations; the measure is the normal's.
        """
        low, high = (
            tf.clip_by_value((bound - self.loc) / self.scale, -_FARTHEST, _FARTHEST)
            for bound in (-1.0, 1.0)
        )
        density_low, density_high = (
            tf.exp(-0.5 * tf.square(z) - _HALF_LOG_2PI) for z in (low, high)
        )
        mass = 0.5 * (tf.math.erf(high / math.sqrt(2.0)) - tf.math.erf(low / math.sqrt(2.0)))
        square = mass + low * density_low - high * density_high
        return mass, density_low - density_high, square


class TanhNormal(Normal):
    """tanh of a normal: a density on (-1, 1).

    atanh is infinite at -1 and 1, which float32 samples do reach. Beyond `threshold` the density is
    therefore taken to be constant: the mass of the tail divided by its width. `sample_and_log_prob`
    knows the sample of the normal and is exact everywhere. The divergence is that of the normals,
    since invertible maps preserve it. The entropy has no closed form and is estimated from one
    sample (unbiased, with gradients).
    """

    def __init__(self, loc: tf.Tensor, scale: tf.Tensor, threshold: float = 0.999):
        """Creates the distributions; `threshold` is where the tails begin."""
        super().__init__(loc, scale)
        self._threshold = threshold

    def sample(self) -> tf.Tensor:
        return tf.tanh(super().sample())

    def sample_and_log_prob(self, differentiable: bool = True) -> tuple[tf.Tensor, tf.Tensor]:
        x = super().sample()
        if not differentiable:
            x = tf.stop_gradient(x)
        log_prob = self._elementwise_log_prob(x) - _log_tanh_slope(x)
        return tf.tanh(x), tf.reduce_sum(log_prob, axis=-1)

    def mode(self) -> tf.Tensor:
        """Tanh of the normal's mean, not the (one or two) modes of the transformed density."""
        return tf.tanh(self.loc)

    def log_prob(self, actions: tf.Tensor) -> tf.Tensor:
        inside = tf.clip_by_value(actions, -self._threshold, self._threshold)
        x = tf.atanh(inside)
        log_prob = self._elementwise_log_prob(x) - _log_tanh_slope(x)
        edge = math.atanh(self._threshold)
        log_width = math.log(1.0 - self._threshold)
        left = log_normal_tail((edge + self.loc) / self.scale) - log_width
        right = log_normal_tail((edge - self.loc) / self.scale) - log_width
        log_prob = tf.where(actions <= -self._threshold, left, log_prob)
        log_prob = tf.where(actions >= self._threshold, right, log_prob)
        return tf.reduce_sum(log_prob, axis=-1)

    def entropy(self) -> tf.Tensor:
        """Entropy of the normal plus the mean log slope of tanh, from one sample."""
        slope = _log_tanh_slope(Normal.sample(self))
        return tf.reduce_sum(self._elementwise_entropy() + slope, axis=-1)


class Deterministic(Distribution):
    """Always the same vector."""

    def __init__(self, loc: tf.Tensor):
        """Creates the distributions; `loc` <float32>[..., n] is the action."""
        self.loc = loc

    def sample(self) -> tf.Tensor:
        return self.loc

    def mode(self) -> tf.Tensor:
        return self.loc

    def log_prob(self, actions: tf.Tensor) -> tf.Tensor:
        """0 for the action, -inf for others: log probability mass, since there is no density."""
        return tf.where(self._equals(actions), 0.0, -math.inf)

    def entropy(self) -> tf.Tensor:
        return tf.zeros_like(self.loc[..., 0])

    def kl_divergence(self, other: Deterministic) -> tf.Tensor:
        return tf.where(self._equals(other.loc), 0.0, math.inf)

    def _equals(self, actions: tf.Tensor) -> tf.Tensor:
        return tf.reduce_all(tf.equal(self.loc, actions), axis=-1)


def mean_std(distribution: Any) -> tf.Tensor | None:
    """Mean over the components of their standard deviations, before squashing or clipping.

    Returns:
      <float32>[...], batch dimensions; None if the distribution is no `Normal`.
    """
    return tf.reduce_mean(distribution.scale, -1) if isinstance(distribution, Normal) else None


def log_normal_tail(x: tf.Tensor) -> tf.Tensor:
    """Log P(X > x) for a standard normal X, accurate where P itself underflows.

    Args:
      x: <float32>[...].
    """
    far = x > 5.0
    near = tf.math.log(0.5 * tf.math.erfc(tf.where(far, 0.0, x) / math.sqrt(2.0)))
    # Asymptotic series of Mills' ratio; for x >= 5 its next term is below 1e-3 / x^2.
    z = tf.where(far, x, 5.0)
    inverse_square = 1.0 / tf.square(z)
    series = 1.0 - inverse_square * (
        1.0 - inverse_square * (3.0 - inverse_square * (15.0 - 105.0 * inverse_square))
    )
    tail = -0.5 * tf.square(z) - tf.math.log(z) - _HALF_LOG_2PI + tf.math.log(series)
    return tf.where(far, tail, near)


def _log_tanh_slope(x: tf.Tensor) -> tf.Tensor:
    """log(1 - tanh(x)^2) without cancellation."""
    return 2.0 * (math.log(2.0) - x - tf.nn.softplus(-2.0 * x))


def softplus_default_std_fn(scale: tf.Tensor) -> tf.Tensor:
    """softplus(scale) + 0.001."""
    return tf.nn.softplus(scale) + 1e-3


def safe_exp(x: tf.Tensor) -> tf.Tensor:
    """exp(x) that neither overflows nor reaches zero: x is clipped to [-15, 15]."""
    return tf.exp(tf.clip_by_value(x, -15.0, 15.0))


def safe_exp_std_fn(std_for_zero_param: float, min_std: float) -> StdFn:
    """A function: std = exp(parameter), shifted so that 0 maps to `std_for_zero_param`.

    Args:
      std_for_zero_param: standard deviation at parameter 0.
      min_std: lower bound, below `std_for_zero_param`.
    """
    shift = math.log(std_for_zero_param - min_std)
    return lambda x: safe_exp(x + shift) + min_std


def softplus_std_fn(std_for_zero_param: float, min_std: float) -> StdFn:
    """As `safe_exp_std_fn`, but std = softplus(parameter)."""
    shift = math.log(math.expm1(std_for_zero_param - min_std))
    return lambda x: tf.nn.softplus(x + shift) + min_std


def normal_tanh_distribution(
    num_actions: int, gaussian_std_fn: StdFn = softplus_default_std_fn
) -> ParametricDistribution:
    """Tanh of independent normals; the parameters are means, then std parameters.

    Args:
      num_actions: number of components of an action.
      gaussian_std_fn: maps a parameter to a standard deviation.
    """
    return _normal_family(TanhNormal, num_actions, gaussian_std_fn)


def normal_clipped_distribution(
    num_actions: int, gaussian_std_fn: StdFn = softplus_default_std_fn
) -> ParametricDistribution:
    """As `normal_tanh_distribution`, but the normals are clipped to [-1, 1]."""
    return _normal_family(ClippedNormal, num_actions, gaussian_std_fn)


def deterministic_tanh_distribution(num_actions: int) -> ParametricDistribution:
    """The action is tanh of the parameters.

    Args:
      num_actions: number of components of an action.
    """
    return ParametricDistribution(
        param_size=num_actions,
        create_dist=lambda params: Deterministic(tf.tanh(params)),
        event_shape=(num_actions,),
        reparametrizable=True,
    )


def _normal_family(
    kind: type[Normal], num_actions: int, gaussian_std_fn: StdFn
) -> ParametricDistribution:
    def create(params: tf.Tensor) -> Normal:
        loc, scale = tf.split(params, 2, axis=-1)
        return kind(loc, gaussian_std_fn(scale))

    return ParametricDistribution(
        param_size=2 * num_actions,
        create_dist=create,
        event_shape=(num_actions,),
        reparametrizable=True,
    )
