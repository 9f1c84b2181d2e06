"""What each choice contributes to performance: the two analyses of the paper.

"What Matters In On-Policy Reinforcement Learning?" (arXiv 2006.05990, section 2) samples all
choices at random, so that a choice can be judged although all others vary, in two ways. For a
choice, let C be the configurations in which it exists and that have ended, n their number, and p_i
the performance of configuration i (`results.performances`; -inf if it failed). Choices from a range
are divided into `BINS` bins of equal probability, each of which counts as one value.

1. *Conditional 95th percentile*: how good is a value if the other choices are good too?

       P95(v) = min { p_j in C_v : #{ i in C_v : p_i <= p_j } >= 0.95 |C_v| },

   where C_v are the configurations of C with the value v. This is the sample percentile without
   interpolation, so that it is defined with -inf; of fewer than 20 configurations it is the best.
   Its 95 % confidence interval is a bootstrap: P95 of `RESAMPLES` samples of |C_v| configurations
   drawn from C_v with replacement; the interval lies between the 2.5th and the 97.5th percentile of
   these. It cannot exceed the best performance seen, so with few configurations it is too narrow
   above.

2. *Distribution among the best*: values that are over-represented among the best configurations
   matter. The best are the m = max(ceil(0.05 n), min(`FEWEST`, n)) configurations of C with the
   highest p_i (ties: the lower number first), without failed ones. With k_v of them having the
   value v, the share s = k_v / m has the 95 % score interval of Wilson, which, unlike the normal
   approximation, is sensible for small m and shares of 0 and 1. It is to be compared with the share
   of v among all of C, |C_v| / n.

The choice of these intervals is ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seed_rl.common.config.flag_definitions import shown
from seed_rl.study import results as results_lib
from seed_rl.study import spec as spec_lib
from seed_rl.study.directory import Study
from seed_rl.study.fields import Scalar
from seed_rl.study.results import Performance
from seed_rl.study.spec import Choice
from seed_rl.study.statistics import Interval

FILE_NAME = "percentiles.csv"
TOP_PERCENT = 5
FEWEST = 3
BINS = 4
RESAMPLES = 1000
_MOST_VALUES = 8  # Integer ranges with more are divided into bins.


class Value(NamedTuple):
    """What one value of a choice contributes.

    Attributes:
      label: the value, or the bin as "lowest – highest".
      configurations: |C_v|.
      percentile: P95(v); None without configurations.
      best: k_v.
      share: k_v / m; None if m = 0.
      sampled_share: |C_v| / n.
    """

    label: str
    configurations: int
    percentile: Interval | None
    best: int
    share: Interval | None
    sampled_share: float


class Group(NamedTuple):
    """A value of a choice, or a bin: the samples in [low, high)."""

    label: str
    value: Scalar | None
    low: float = 0.0
    high: float = 0.0

    def has(self, sampled: Scalar) -> bool:
        if self.value is not None:
            return spec_lib.same(self.value, sampled)
        return self.low <= float(sampled) < self.high


def analyse(choice: Choice, performances: Sequence[Performance]) -> list[Value]:
    """Both analyses of a choice, one element per value or bin; [] if it exists nowhere."""
    existing = [p for p in performances if choice.name in p.configuration.values]
    if not existing:
        return []
    best = best_of(existing)
    values = []
    for group in groups(choice):
        members = [p for p in existing if group.has(p.configuration.values[choice.name])]
        among_best = sum(group.has(p.configuration.values[choice.name]) for p in best)
        values.append(
            Value(
                group.label,
                len(members),
                percentile_interval([p.value for p in members]) if members else None,
                among_best,
                share_interval(among_best, len(best)) if best else None,
                len(members) / len(existing),
            )
        )
    return values


def groups(choice: Choice) -> list[Group]:
    """The values of a choice, or the bins of a range."""
    if choice.kind == "values":
        return [Group(shown(value), value) for value in choice.domain]
    low, high = choice.low, choice.high
    if choice.kind == "integers" and high - low < _MOST_VALUES:
        return [Group(str(value), value) for value in range(int(low), int(high) + 1)]
    if choice.kind == "integers":
        # The first integer of each bin, and the one after the last.
        edges = [int(low) + k * int(high - low + 1) // BINS for k in range(BINS + 1)]
        return [Group(f"{a} – {b - 1}", None, a, b) for a, b in zip(edges, edges[1:], strict=False)]
    space = np.geomspace if choice.kind == "log_uniform" else np.linspace
    bounds = space(low, high, BINS + 1).tolist()
    ends = [*bounds[1:-1], math.inf]  # The last bin has its end.
    return [
        Group(f"{a:.3g} – {b:.3g}", None, a, end)
        for a, b, end in zip(bounds, bounds[1:], ends, strict=False)
    ]


def best_of(performances: Sequence[Performance]) -> list[Performance]:
    """The best configurations, as defined in the module's docstring."""
    number = max(math.ceil(TOP_PERCENT * len(performances) / 100), min(FEWEST, len(performances)))
    ranked = sorted(performances, key=lambda p: (-p.value, p.configuration.number))
    return [p for p in ranked[:number] if p.value > -math.inf]


def percentile_interval(values: Sequence[float]) -> Interval:
    """P95 of the values, with its bootstrap interval; the same each time."""
    drawn = np.asarray(values, np.float64)
    generator = np.random.default_rng(len(drawn))
    resampled = _p95(generator.choice(drawn, (RESAMPLES, len(drawn))))
    low, high = np.quantile(resampled, (0.025, 0.975), method="inverted_cdf")
    return Interval(float(_p95(drawn)), float(low), float(high))


def _p95(values: np.ndarray) -> np.ndarray:
    return np.quantile(values, 0.95, axis=-1, method="inverted_cdf")


def share_interval(count: int, total: int) -> Interval:
    """The share `count / total` with its 95 % interval by Wilson's score method."""
    from scipy import stats  # Takes a second to import.

    low, high = stats.binomtest(count, total).proportion_ci(0.95, "wilson")
    return Interval(count / total, float(low), float(high))


def write(study: Study, analyses: Sequence[tuple[Choice, Sequence[Value]]]) -> Path:
    """Writes the numbers of the plots; returns the file's path.

    Raises:
      UserError: it cannot be written.
    """
    header: list[object] = ["choice", "value", "configurations", "p95", "p95_low", "p95_high"]
    header += ["best", "share", "share_low", "share_high", "sampled_share"]
    rows: list[list[object]] = [header]
    for choice, values in analyses:
        for value in values:
            rows.append(
                [choice.name, value.label, value.configurations]
                + [*_cells(value.percentile), value.best, *_cells(value.share)]
                + [f"{value.sampled_share:.4g}"]
            )
    return results_lib.write_table(study.path / FILE_NAME, rows)


def _cells(interval: Interval | None) -> list[str]:
    return [f"{number:.6g}" for number in interval] if interval else [""] * 3
