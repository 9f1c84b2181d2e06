"""Rates a run by its returns.

The paper (arXiv 2006.05990, section 2) evaluates a policy at regular intervals of training and
averages the undiscounted returns over all evaluations, which rewards fast learning as the area
under the learning curve does. Here the returns are those of the episodes in the run's
`returns.csv`:

- The frames of the run, F, are divided into K equal intervals (spec: `intervals`). An episode
  belongs to the interval k in which it ended, frames in (k F / K, (k + 1) F / K]; what ends after
  F belongs to the last.
- The value R_k of an interval is the mean return of its episodes, whatever their number: otherwise
  short episodes would count more than long ones. An interval without episodes has the value of the
  one before; the first ones, that of the first interval with any.
- `average`: the performance is the mean of R_0 ... R_{K-1}; `final`: it is R_{K-1}.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seed_rl.common.run_files import returns_log
from seed_rl.common.run_files.returns_log import EpisodeRow
from seed_rl.study.spec import Measure

_EVENTS = "events.out.tfevents.*"
"""Files of a run. Each learner writes one, named after the second of its start, Unix time."""


class Rating(NamedTuple):
    """How good a run was.

    Attributes:
      performance: by the spec's measure.
      final_return: R_{K-1}.
      episodes: number of episodes that it is based on.
    """

    performance: float
    final_return: float
    episodes: int


def rate(logdir: Path, frames: int, measure: Measure) -> Rating | None:
    """Rates the run in `logdir`, of `frames` frames; None without an episode to rate."""
    rows = _read(logdir, measure)
    if not rows:
        return None
    means = interval_means(rows, frames, measure.intervals, measure.score)
    final = float(means[-1])
    average = float(means.mean())
    return Rating(average if measure.measure == "average" else final, final, len(rows))


def frames_per_s(logdir: Path) -> float | None:
    """Environment frames per second of a run, without its pauses; None if that cannot be said.

    Counts from one end of an episode to the next, unless a learner has started between them. (Their
    distance does not show a pause: episodes of equal length end together, minutes apart.)
    """
    try:
        rows = returns_log.read(logdir / returns_log.FILE_NAME)
    except (OSError, UnicodeDecodeError):
        return None
    ends = np.array([(row.time, row.frames) for row in rows]).reshape(-1, 2)
    names = [path.name.split(".")[3] for path in logdir.glob(_EVENTS)]
    starts = np.sort([int(name) for name in names if name.isdecimal()])
    resumed = np.diff(np.searchsorted(starts, ends[:, 0])) != 0
    steps = np.diff(ends, axis=0)
    seconds, frames = steps[(steps[:, 0] >= 0) & ~resumed].sum(axis=0)
    return float(frames / seconds) if seconds > 0 else None


def so_far(logdir: Path, frames: int, measure: Measure) -> list[float]:
    """The performance that a run would have had if it had ended after its 1st, 2nd, ... interval.

    Only for intervals that have ended, because an episode has ended in a later one.
    """
    rows = _read(logdir, measure)
    ended = max((_interval(row.frames, frames, measure.intervals) for row in rows), default=0)
    if not ended:
        return []
    means = interval_means(rows, frames, measure.intervals, measure.score)[:ended]
    if measure.measure == "average":
        means = np.cumsum(means) / np.arange(1, ended + 1)
    return [float(value) for value in means]


def curve(logdir: Path, frames: int, measure: Measure, intervals: int) -> list[float]:
    """R_k of a run's intervals, NaN before the first with an episode; [] without an episode."""
    rows = _read(logdir, measure)
    if not rows:
        return []
    means = interval_means(rows, frames, intervals, measure.score)
    means[: min(_interval(row.frames, frames, intervals) for row in rows)] = math.nan
    return [float(mean) for mean in means]


def _read(logdir: Path, measure: Measure) -> list[EpisodeRow]:
    try:
        rows = returns_log.read(logdir / returns_log.FILE_NAME)
    except (OSError, UnicodeDecodeError):
        return []
    return [row for row in rows if row.evaluation == (measure.episodes == "evaluation")]


def _interval(ended: int, frames: int, intervals: int) -> int:
    # Whole numbers, so that no rounding moves an episode across a boundary.
    return min(max(ended * intervals - 1, 0) // frames, intervals - 1)


def interval_means(
    rows: Iterable[EpisodeRow], frames: int, intervals: int, score: bool = False
) -> np.ndarray:
    """The values R_k of the module's docstring.

    Args:
      rows: at least one episode.
      frames: length of the run, F.
      intervals: K.
      score: whether to use the unshaped return.

    Returns:
      <float64>[intervals].
    """
    sums, counts = np.zeros(intervals), np.zeros(intervals)
    for row in rows:
        k = _interval(row.frames, frames, intervals)
        sums[k] += row.raw_return if score else row.episode_return
        counts[k] += 1
    (filled,) = np.nonzero(counts)
    # The last interval with episodes at or before each one; the first such one before that.
    source = np.maximum(np.searchsorted(filled, np.arange(intervals), side="right") - 1, 0)
    return (sums[filled] / counts[filled])[source]
