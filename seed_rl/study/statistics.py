"""Scores of several tasks and seeds as few numbers with intervals.

After "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (arXiv 2108.13264).
With the normalized scores x_{t,s} of task t and seed s:

- *IQM*: the mean of the middle half of all x_{t,s},
- *mean* and *median*: over tasks, of each task's mean over seeds,
- *optimality gap*: the mean over all of max(0, 1 - x_{t,s}),
- *probability of improvement* of X over Y: the mean over tasks of the share of pairs of seeds with
  x > y, where equal ones count half.

Intervals are 95 % percentile intervals of a stratified bootstrap: the seeds of each task are
resampled among themselves. They need two seeds of each task; with three to five they are narrower
than they should be. For the mean of one task, Student's t gives wider ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

RESAMPLES = 2000
Scores = Sequence[Sequence[float]]
"""For each task, the scores of its seeds."""


class Interval(NamedTuple):
    """An estimate and its 95 % confidence interval."""

    estimate: float
    low: float
    high: float


def iqm(*tasks: Any, axis: int = -1) -> Any:
    from scipy import stats

    return stats.trim_mean(np.concatenate(tasks, axis), 0.25, axis)


def mean(*tasks: Any, axis: int = -1) -> Any:
    return np.mean([np.mean(task, axis) for task in tasks], 0)


def median(*tasks: Any, axis: int = -1) -> Any:
    return np.median([np.mean(task, axis) for task in tasks], 0)


def optimality_gap(*tasks: Any, axis: int = -1) -> Any:
    return np.mean(np.maximum(0, 1 - np.concatenate(tasks, axis)), axis)


def improvement(*tasks: Any, axis: int = -1) -> Any:
    """Improvement of X, the first half of the tasks, over Y, the same tasks in the second half."""
    half = len(tasks) // 2
    shares = []
    for x, y in zip(tasks[:half], tasks[half:], strict=True):
        x, y = np.moveaxis(x, axis, -1)[..., :, None], np.moveaxis(y, axis, -1)[..., None, :]
        shares.append(np.mean((x > y) + 0.5 * (x == y), (-2, -1)))
    return np.mean(shares, 0)


def estimate(statistic: Callable[..., Any], scores: Scores) -> Interval:
    """A statistic of `scores` with its interval, whose ends are NaN if a task has a single seed."""
    from scipy import stats

    tasks = [np.asarray(task, np.float64) for task in scores]
    value = float(statistic(*tasks))
    if min(map(len, tasks)) < 2:
        return Interval(value, math.nan, math.nan)
    found = stats.bootstrap(
        tasks,
        statistic,
        n_resamples=RESAMPLES,
        vectorized=True,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Interval(value, float(found.low), float(found.high))


def mean_of_seeds(scores: Sequence[float]) -> Interval:
    """The mean with its 95 % interval of Student's t, whose ends are NaN with a single score."""
    from scipy import stats

    value = float(np.mean(scores))
    if len(scores) < 2:
        return Interval(value, math.nan, math.nan)
    half = stats.t.ppf(0.975, len(scores) - 1) * np.std(scores, ddof=1)
    half = float(half) / math.sqrt(len(scores))
    return Interval(value, value - half, value + half)


def profile(scores: Scores, thresholds: np.ndarray) -> np.ndarray:
    """The performance profile: the share of runs with a score above each threshold.

    Args:
      scores: normalized.
      thresholds: <float>[thresholds].

    Returns:
      <float64>[thresholds], the mean over tasks of each task's share.
    """
    return np.mean([np.mean(np.asarray(task)[:, None] > thresholds, 0) for task in scores], 0)
