"""Running statistics of `common.normalization.running_statistics`, configured by gin."""

from __future__ import annotations

import gin

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


@gin.configurable
class AverageMeanStd(running_statistics.AverageMeanStd):
    """Configured by gin."""


@gin.configurable
class TwoLevelAverageMeanStd(running_statistics.TwoLevelAverageMeanStd):
    """Configured by gin."""


@gin.configurable
class FixedMeanStd(running_statistics.FixedMeanStd):
    """Configured by gin."""
