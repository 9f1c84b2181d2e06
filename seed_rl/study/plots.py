"""Draws the two analyses of `percentiles`, one figure per choice, and performance profiles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from seed_rl.common.errors import UserError
from seed_rl.common.monitoring.plots import figure, save
from seed_rl.study.percentiles import Value
from seed_rl.study.spec import Choice
from seed_rl.study.statistics import Interval

DIRECTORY = "plots"
THRESHOLDS = np.linspace(0, 2, 201)
"""Normalized scores at which performance profiles are drawn."""


def draw_all(path: Path, analyses: Sequence[tuple[Choice, Sequence[Value]]]) -> list[Path]:
    """Draws each choice that exists in any configuration to PATH/plots/CHOICE.png.

    Raises:
      UserError: matplotlib is missing, or a file cannot be written.
    """
    drawn = []
    for choice, values in analyses:
        if not values:
            continue
        out = path / DIRECTORY / f"{quote(choice.name, safe='')}.png"
        try:
            out.parent.mkdir(exist_ok=True)
        except OSError as error:
            raise UserError(f"Cannot write {out.parent}: {error.strerror}.") from error
        draw(choice, values, out)
        drawn.append(out)
    return drawn


def draw(choice: Choice, values: Sequence[Value], out: Path) -> None:
    """Draws one choice: the 95th percentiles on the left, the shares among the best on the right.

    Raises:
      UserError: matplotlib is missing, or the file cannot be written.
    """
    made = figure(max(8.0, 1.6 * len(values)), 4)
    left, right = made.subplots(1, 2)
    _draw_percentiles(left, values)
    _draw_shares(right, values)
    title = choice.target
    if title.strip("-") != choice.name:
        title = f"{choice.name}: {title}"
    if choice.conditions:
        wanted = [f"{k} = {' or '.join(map(str, v))}" for k, v in choice.conditions.items()]
        title += f" (if {', '.join(wanted)})"
    made.suptitle(title)
    save(made, out)


def draw_profiles(profiles: Mapping[str, np.ndarray], unit: str, out: Path) -> None:
    """Draws performance profiles.

    Args:
      profiles: of each study, <float>[thresholds], the share of runs above each of `THRESHOLDS`.
      unit: the method whose score is 1.
      out: the file to write.

    Raises:
      UserError: matplotlib is missing, or the file cannot be written.
    """
    made = figure(6, 3.6)
    axes = made.add_subplot()
    for name, shares in profiles.items():
        axes.plot(THRESHOLDS, shares, label=name)
    axes.set_xlabel(f"score, where 1 is {unit}")
    axes.set_ylabel("share of runs above it")
    axes.grid(alpha=0.3)
    axes.legend()
    save(made, out)


def _draw_percentiles(axes: Any, values: Sequence[Value]) -> None:
    _label_values(axes, values)
    intervals = [value.percentile for value in values]
    finite = [end for interval in intervals for end in interval or () if math.isfinite(end)]
    for x, interval in enumerate(intervals):
        if interval is not None and math.isfinite(interval.estimate):
            # An error bar down to -inf ends at the lowest number that is shown.
            bars = interval._replace(low=max(interval.low, min(finite)))
            axes.errorbar(x, bars.estimate, yerr=_errors(bars), fmt="o", color="C0", capsize=4)
    axes.set_ylabel("95th percentile of performance")


def _draw_shares(axes: Any, values: Sequence[Value]) -> None:
    _label_values(axes, values)
    total = sum(value.best for value in values)
    for x, value in enumerate(values):
        if value.share is not None:
            axes.bar(x, value.share.estimate, width=0.6, color="C0", alpha=0.6)
            error = _errors(value.share)
            axes.errorbar(x, value.share.estimate, yerr=error, fmt="none", color="C0", capsize=4)
        label = "among all" if x == 0 else None
        axes.hlines(value.sampled_share, x - 0.4, x + 0.4, "k", linestyles="dashed", label=label)
    axes.set_ylim(0, 1)
    axes.set_ylabel(f"share among the best {total}")
    axes.legend()


def _label_values(axes: Any, values: Sequence[Value]) -> None:
    labels = [f"{value.label}\n({value.configurations})" for value in values]
    axes.set_xticks(range(len(values)), labels, fontsize="small")
    axes.set_xlim(-0.6, len(values) - 0.4)
    axes.set_xlabel("value (configurations)")
    axes.grid(alpha=0.3)


def _errors(interval: Interval) -> list[list[float]]:
    """Distances of the interval's ends from the estimate, never negative, for `errorbar`."""
    return [
        [max(0.0, interval.estimate - interval.low)],
        [max(0.0, interval.high - interval.estimate)],
    ]
