"""Running statistics of `common.normalization.running_statistics`, configured by gin."""

from __future__ import annotations

import gin
import tensorflow as tf

from seed_rl.common.normalization import running_statistics
from seed_rl.common.normalization.running_statistics import (
    MeanStd,
    merge_means,
    merge_summed_variances,
)

__all__ = [
    "AverageMeanStd",
    "EMAMeanStd",
    "FixedMeanStd",
    "MeanStd",
    "TwoLevelAverageMeanStd",
    "merge_means",
    "merge_summed_variances",
]


@gin.configurable
class EMAMeanStd(running_statistics.EMAMeanStd):
    """Configured by gin."""

    @property
    def first_moment(self) -> tf.Tensor:
        """Average of the samples, <float32>[size]."""
        return tf.identity(self.mean)

    @property
    def second_moment(self) -> tf.Tensor:
        """Average of their squares, <float32>[size]."""
        return self.variance + tf.square(self.mean)


@gin.configurable
class AverageMeanStd(running_statistics.AverageMeanStd):
    """Configured by gin."""


@gin.configurable
class TwoLevelAverageMeanStd(running_statistics.TwoLevelAverageMeanStd):
    """Configured by gin."""


@gin.configurable
class FixedMeanStd(running_statistics.FixedMeanStd):
    """Configured by gin."""
