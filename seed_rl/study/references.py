"""Published scores, and how ours differ from them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seed_rl.study import fields
from seed_rl.study.fields import Scalar
from seed_rl.study.spec import Spec
from seed_rl.study.statistics import Interval

_TRAINING = "training return"
_SAMPLED = "sampled actions"
_BEST = "best evaluation"


class Reference(NamedTuple):
    """A published score, a row of the file of references.

    Attributes:
      agent: the tables of its studies show it; "": those of all.
      task: the environment.
      method: what has the score.
      score: the mean return.
      deviation: the sample deviation over seeds, or as `protocol` says; None: not known.
      frames: after how many; 0: without training.
      seeds: number of runs that score and deviation are of; 0: not known, or one.
      window: number of last frames over whose episodes a training return is averaged; 0: as many
        as in the last interval.
      protocol: how it was measured.
      source: where it was published.
    """

    agent: str
    task: str
    method: str
    score: float
    deviation: float | None
    frames: int
    seeds: int
    window: int
    protocol: str
    source: str

    def in_training(self, spec: Spec) -> bool:
        """Whether a study measures it in training: the actions are sampled there."""
        sampled = _SAMPLED in self.protocol and spec.evaluation_actions != "sampled"
        return sampled or _TRAINING in self.protocol

    def text(self) -> str:
        """Score and deviation."""
        numbers = (self.score, self.deviation)
        return " ± ".join(f"{number:,.10g}" for number in numbers if number is not None)

    def title(self, spec: Spec, chosen: Mapping[str, Scalar] | None = None) -> str:
        """The method, and what makes its score unlike those of a study.

        Args:
          spec: of the study.
          chosen: the values of its choices, if only one configuration is meant.
        """
        unlike = []
        if self.in_training(spec):
            unlike.append("in training" if _TRAINING in self.protocol else _SAMPLED)
        if _BEST in self.protocol:
            unlike.append("best of the run")
        if "sticky" in self.protocol:
            sticky = "no sticky" not in self.protocol
            if _sticky(spec, chosen or {}) != {sticky}:
                unlike.append("sticky actions" if sticky else "no sticky actions")
        return f"{self.method} ({', '.join(unlike)})" if unlike else self.method

    def difference(self, ours: Sequence[float]) -> Interval | None:
        """How much higher the mean of `ours` is, by Welch's t; None if a spread is not known."""
        from scipy import stats

        if len(ours) < 2 or self.seeds < 2 or not self.deviation:
            return None
        counts = np.array([len(ours), self.seeds])
        variances = np.array([np.var(ours, ddof=1), self.deviation**2]) / counts
        freedom = variances.sum() ** 2 / (variances**2 / (counts - 1)).sum()
        half = float(stats.t.ppf(0.975, freedom) * math.sqrt(variances.sum()))
        higher = float(np.mean(ours)) - self.score
        return Interval(higher, higher - half, higher + half)


def _sticky(spec: Spec, chosen: Mapping[str, Scalar]) -> set[bool]:
    """Whether a study has sticky actions; both if it has them only in some configurations."""
    flag = "sticky_actions"
    given = spec.flags.get(flag, False)
    values = [given[-1] if isinstance(given, tuple) else given]
    for choice in spec.choices:
        if choice.flag == flag:
            values = [chosen[choice.name]] if choice.name in chosen else [*choice.domain]
    return {str(value).lower() in ("true", "t", "1") for value in values}


def _count(cell: str) -> int:
    return int(cell or 0)


_COLUMNS: fields.Columns = dict.fromkeys(Reference._fields, str) | {
    "score": float,
    "deviation": fields.optional(float),
    "frames": int,
    "seeds": _count,
    "window": _count,
}


def read_references(path: Path) -> list[Reference]:
    """Reads published scores.

    Raises:
      UserError: the file cannot be read, lacks a column, or has no number where one must be.
    """
    return [
        Reference(*(convert(row[name]) for name, convert in _COLUMNS.items()))
        for row in fields.read_table(path, _COLUMNS)
    ]


def comparable(
    references: Iterable[Reference], spec: Spec, environments: Collection[str]
) -> list[Reference]:
    """Those of a study's agent and environments after as many frames, and without training."""
    return [
        row
        for row in references
        if row.task in environments
        and row.agent in ("", spec.agent)
        and row.frames in (0, spec.frames)
    ]
