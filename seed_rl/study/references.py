"""Published scores, and the tests whether ours differ from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seed_rl.common.errors import UserError
from seed_rl.study import fields
from seed_rl.study.spec import Spec

ZERO, ONE = "random", "human"
"""The methods whose scores are 0 and 1 in normalized scores by default."""
_TRAINING = "training return"
_UNLIKE = {_TRAINING: "in training", "best evaluation": "best of the run"}
"""Words of a protocol that mark a score as not comparable to ours, and what columns say then."""


class Reference(NamedTuple):
    """A published score, a row of the file of references.

    All fields are text as in the file. Tables of a study show the rows of its agent, or of "".

    Attributes:
      seeds: number of runs of which `score` is the mean and `deviation` the sample deviation;
        "": one, or not known.
      window: number of last frames over whose episodes a training return is averaged; "": as
        ours, a tenth.
    """

    agent: str
    task: str
    method: str
    score: str
    deviation: str
    frames: str
    seeds: str
    window: str
    protocol: str
    source: str

    @property
    def in_training(self) -> bool:
        """Whether it is the return of training episodes."""
        return _TRAINING in self.protocol

    def text(self) -> str:
        """Score and deviation."""
        return " ± ".join(f"{float(x):,g}" for x in (self.score, self.deviation) if x)

    def title(self, spec: Spec) -> str:
        """The method, and what makes its score unlike those of a study."""
        unlike = [mark for words, mark in _UNLIKE.items() if words in self.protocol]
        if "sticky" in self.protocol:
            sticky = "no sticky" not in self.protocol
            if sticky != bool(spec.flags.get("sticky_actions")):
                unlike.append("sticky actions" if sticky else "no sticky actions")
        return f"{self.method} ({', '.join(unlike)})" if unlike else self.method

    def p_value(self, ours: Sequence[float]) -> float | None:
        """Welch's p of the difference from the mean of `ours`; None without the seeds for it."""
        from scipy import stats

        if len(ours) < 2 or not self.deviation or int(self.seeds or 1) < 2:
            return None
        own = float(np.mean(ours)), float(np.std(ours, ddof=1)), len(ours)
        theirs = float(self.score), float(self.deviation), int(self.seeds)
        return float(stats.ttest_ind_from_stats(*own, *theirs, equal_var=False).pvalue)


def read_references(path: Path) -> list[Reference]:
    """Reads published scores.

    Raises:
      UserError: the file cannot be read, or lacks a column.
    """
    rows = fields.read_table(path)
    if rows and (missing := set(Reference._fields) - set(rows[0])):
        raise UserError(f"{path} lacks the columns {', '.join(sorted(missing))}.")
    return [Reference(*(row[name] for name in Reference._fields)) for row in rows]


def comparable(
    references: Iterable[Reference], spec: Spec, tasks: Iterable[str]
) -> list[Reference]:
    """Those of a study's agent and tasks after as many frames, and of no training at all."""
    return [
        row
        for row in references
        if row.task in tasks
        and row.agent in ("", spec.agent)
        and float(row.frames) in (0, spec.frames)
    ]
