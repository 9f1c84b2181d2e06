"""Running means and standard deviations, per element of the last dimension.

`update` may run on each training replica with its part of a batch: the statistics are those of the
whole batch, and the same on all replicas.

Samples that are not finite, or beyond ±1e15, whose squares would overflow, are left out, element by
element: they change neither the statistics nor the count of their element.

Variances are kept as sums of squared distances from the mean, not as sums of squares: in float32,
samples around 1e4 with a deviation of 1 would otherwise lose it. The mean of a constant is exact.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from seed_rl.common.normalization import replicated

_LARGEST = 1e15


class MeanStd(tf.Module):
    """Base of running statistics.

    Attributes:
      size: elements of the last dimension; None before `init`.
    """

    def __init__(self, name: str | None = None):
        super().__init__(name=name)
        self.size: int | None = None

    def init(self, size: int) -> None:
        """Creates the variables, with the mean 0 and the standard deviation 1.

        Call it in the scope of the training strategy, before the first use and before a checkpoint
        is restored: in the constructor of a network or algorithm, or in a network's first call,
        which the learner makes before it restores. Later calls with the same size do nothing.

        Args:
          size: elements of the last dimension.

        Raises:
          ValueError: the size was another before.
        """
        if self.size not in (None, size):
            raise ValueError(f"These statistics are of {self.size} elements, not {size}.")
        if self.size is None:
            self.size = size
            self._create(size)

    def normalize(self, x: tf.Tensor) -> tf.Tensor:
        """(x - mean) / std for x <float32>[..., size]."""
        mean, std = self.get_mean_std()
        return (x - mean) / std

    def unnormalize(self, x: tf.Tensor) -> tf.Tensor:
        """The inverse of `normalize`."""
        mean, std = self.get_mean_std()
        return x * std + mean

    def update(self, data: tf.Tensor) -> None:
        """Takes samples <float32>[..., size] into account."""
        raise NotImplementedError

    def get_mean_std(self) -> tuple[tf.Tensor, tf.Tensor]:
        """(mean, std), <float32>[size]: values, which later updates do not change."""
        raise NotImplementedError

    def _create(self, size: int) -> None:
        """Creates variables."""

    def _initialized(self) -> int:
        if self.size is None:
            raise ValueError("Call init(size) before the first use of running statistics.")
        return self.size


class EMAMeanStd(MeanStd):
    """Exponential moving averages of the first and second moments.

    They start at those of mean 0 and standard deviation 1. Each update weighs `beta`, however many
    samples it has.
    """

    def __init__(self, beta: float = 0.01, std_min_value: float = 1e-6, std_max_value: float = 1e6):
        """Prepares; `init` creates the variables.

        Args:
          beta: weight of an update, above 0 and at most 1.
          std_min_value: smallest standard deviation.
          std_max_value: largest one.

        Raises:
          ValueError: `beta` is outside its bounds.
        """
        if not 0 < beta <= 1:
            raise ValueError(f"beta must be above 0 and at most 1, got {beta}.")
        super().__init__()
        self._beta = beta
        self._std_range = (std_min_value, std_max_value)

    def update(self, data: tf.Tensor) -> None:
        size, beta = self._initialized(), self._beta
        batch = _batch_moments(data, size, self.mean)
        distance = batch.mean - self.mean
        # The second moment minus the square of the first, without cancellation.
        variance = (1 - beta) * (self.variance + beta * tf.square(distance))
        variance += beta * tf.math.divide_no_nan(batch.summed_variance, batch.count)
        self.variance.assign(tf.where(batch.count > 0, variance, self.variance))
        self.mean.assign(tf.where(batch.count > 0, self.mean + beta * distance, self.mean))

    def get_mean_std(self) -> tuple[tf.Tensor, tf.Tensor]:
        self._initialized()
        std = tf.clip_by_value(tf.sqrt(self.variance), *self._std_range)
        return tf.identity(self.mean), std

    def _create(self, size: int) -> None:
        self.mean = replicated.variable(np.zeros(size, np.float32), "mean")
        self.variance = replicated.variable(np.ones(size, np.float32), "variance")


class AverageMeanStd(MeanStd):
    """Exact statistics of all samples (Welford's algorithm, merged as by Chan et al.).

    Attributes:
      observation_count: <float32>[size], samples of each element.
      update_count: <int64>[], calls of `update`.
      mean: <float32>[size].
      summed_variance: <float32>[size], sum of squared distances from the mean.
    """

    def __init__(self, std_min_value: float = 1e-6, std_max_value: float = 1e6):
        """Prepares; `init` creates the variables.

        Args:
          std_min_value: smallest standard deviation, that of a constant.
          std_max_value: largest one.
        """
        super().__init__()
        self._std_range = (std_min_value, std_max_value)

    def update(self, data: tf.Tensor) -> None:
        batch = _batch_moments(data, self._initialized(), self.mean)
        self._assign(_merged(self._moments(), batch), self.update_count + 1, 1.0)

    def merge(self, other: AverageMeanStd, alpha: float | tf.Tensor = 1.0) -> None:
        """Adds the samples of other statistics.

        Args:
          other: of the same size; not changed.
          alpha: 1 to do so, 0 to do nothing. A number, because variables of several replicas
            cannot be assigned in a `tf.cond`.
        """
        updates = self.update_count + other.update_count
        self._assign(_merged(self._moments(), other._moments()), updates, alpha)

    def reset(self, alpha: float | tf.Tensor = 1.0) -> None:
        """Forgets all samples if `alpha` is 1; does nothing if it is 0."""
        zeros = tf.zeros([self._initialized()])
        self._assign(_Moments(zeros, zeros, zeros), tf.zeros_like(self.update_count), alpha)

    def get_mean_std(self) -> tuple[tf.Tensor, tf.Tensor]:
        self._initialized()
        return _mean_std(self._moments(), self._std_range)

    def _create(self, size: int) -> None:
        zeros = np.zeros(size, np.float32)
        self.observation_count = replicated.variable(zeros, "observation_count")
        self.update_count = replicated.variable(np.zeros((), np.int64), "update_count")
        self.mean = replicated.variable(zeros, "mean")
        self.summed_variance = replicated.variable(zeros, "summed_variance")

    def _moments(self) -> _Moments:
        variables = (self.observation_count, self.mean, self.summed_variance)
        return _Moments(*(tf.identity(variable) for variable in variables))

    def _assign(self, new: _Moments, updates: tf.Tensor, alpha: float | tf.Tensor) -> None:
        wanted = tf.cast(alpha, tf.float32) > 0
        for variable, value in (
            (self.observation_count, new.count),
            (self.mean, new.mean),
            (self.summed_variance, new.summed_variance),
            (self.update_count, updates),
        ):
            variable.assign(tf.where(wanted, value, variable))


class TwoLevelAverageMeanStd(MeanStd):
    """`AverageMeanStd` for long runs: float32 does not lose small increments.

    Updates go to a buffer, which is merged every `buffer_size` updates.
    """

    def __init__(
        self,
        std_min_value: float = 1e-6,
        std_max_value: float = 1e6,
        buffer_size: float = 1e5,
    ):
        """As `AverageMeanStd`; `buffer_size` is the number of updates between merges."""
        super().__init__()
        self._std_range = (std_min_value, std_max_value)
        self._buffer_size = buffer_size
        self.total = AverageMeanStd(std_min_value, std_max_value)
        self.buffer = AverageMeanStd(std_min_value, std_max_value)

    def update(self, data: tf.Tensor) -> None:
        self._initialized()
        self.buffer.update(data)
        full = tf.cast(self.buffer.update_count, tf.float32) >= self._buffer_size
        alpha = tf.cast(full, tf.float32)
        self.total.merge(self.buffer, alpha)
        self.buffer.reset(alpha)

    def get_mean_std(self) -> tuple[tf.Tensor, tf.Tensor]:
        self._initialized()
        return _mean_std(_merged(self.total._moments(), self.buffer._moments()), self._std_range)

    def _create(self, size: int) -> None:
        self.total.init(size)
        self.buffer.init(size)


class FixedMeanStd(MeanStd):
    """Statistics that never move."""

    def __init__(self, mean: float = 0.0, std: float = 1.0):
        """`mean` and `std` are those of every element."""
        super().__init__()
        self._mean_std = (mean, std)

    def update(self, data: tf.Tensor) -> None:
        del data

    def get_mean_std(self) -> tuple[tf.Tensor, tf.Tensor]:
        mean, std = (tf.fill([self._initialized()], value) for value in self._mean_std)
        return mean, std


def merge_summed_variances(
    v1: tf.Tensor,
    v2: tf.Tensor,
    mu1: tf.Tensor,
    mu2: tf.Tensor,
    merged_mean: tf.Tensor,
    n1: tf.Tensor,
    n2: tf.Tensor,
) -> tf.Tensor:
    """The summed variance of two series together.

    Args:
      v1: <float32>[...] sum of squared distances of the first series from its mean.
      v2: that of the second.
      mu1: <float32>[...] mean of the first series.
      mu2: that of the second.
      merged_mean: mean of both together, see `merge_means`.
      n1: <float32>[...] length of the first series.
      n2: that of the second.

    Returns:
      <float32>[...].
    """
    return v1 + n1 * tf.square(mu1 - merged_mean) + v2 + n2 * tf.square(mu2 - merged_mean)


def merge_means(mu1: tf.Tensor, mu2: tf.Tensor, n1: tf.Tensor, n2: tf.Tensor) -> tf.Tensor:
    """The mean <float32>[...] of two series of lengths `n1` and `n2`; `mu1` if both are empty."""
    return mu1 + (mu2 - mu1) * tf.math.divide_no_nan(n2, n1 + n2)


class _Moments(NamedTuple):
    """The moments of a series of samples, <float32>[size] each."""

    count: tf.Tensor
    mean: tf.Tensor
    summed_variance: tf.Tensor


def _batch_moments(data: tf.Tensor, size: int, near: tf.Tensor) -> _Moments:
    """The moments of the parts of a batch on all replicas.

    Args:
      data: <float32>[..., size], this replica's part.
      size: elements of the last dimension.
      near: <float32>[size] a guess of the mean, the same on all replicas.
    """
    data = tf.reshape(tf.cast(data, tf.float32), [-1, size])
    counted = tf.abs(data) <= _LARGEST  # False for NaN.
    x = tf.where(counted, data - near, 0.0)
    count, total = replicated.sums(
        [tf.reduce_sum(tf.cast(counted, tf.float32), 0), tf.reduce_sum(x, 0)]
    )
    mean = tf.math.divide_no_nan(total, count)
    # The second pass also corrects rounding errors of the first mean.
    rest = tf.where(counted, x - mean, 0.0)
    total, squares = replicated.sums([tf.reduce_sum(rest, 0), tf.reduce_sum(tf.square(rest), 0)])
    correction = tf.math.divide_no_nan(total, count)
    summed_variance = tf.maximum(squares - correction * total, 0.0)
    return _Moments(count, near + (mean + correction), summed_variance)


def _merged(one: _Moments, other: _Moments) -> _Moments:
    count = one.count + other.count
    mean = merge_means(one.mean, other.mean, one.count, other.count)
    summed_variance = merge_summed_variances(
        one.summed_variance,
        other.summed_variance,
        one.mean,
        other.mean,
        mean,
        one.count,
        other.count,
    )
    return _Moments(count, mean, summed_variance)


def _mean_std(moments: _Moments, std_range: tuple[float, float]) -> tuple[tf.Tensor, tf.Tensor]:
    variance = tf.math.divide_no_nan(moments.summed_variance, moments.count)
    std = tf.where(moments.count > 0, tf.sqrt(variance), 1.0)
    return moments.mean, tf.clip_by_value(std, *std_range)
