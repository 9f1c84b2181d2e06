"""What a study has: its runs that are done, from its directory or a copy of three files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seed_rl.common.errors import UserError
from seed_rl.study import directory, fields, results
from seed_rl.study import spec as spec_lib
from seed_rl.study.sampling import Configuration
from seed_rl.study.spec import Spec

_ENVIRONMENT_FLAGS = ("game", "env_name", "env")  # The last is another name of the second.


class FinishedRun(NamedTuple):
    """A run that is done.

    Attributes:
      score: mean score of its evaluation, or the return in training if there is none.
      episodes: how many it was evaluated for.
      training: mean return of the last interval, of the episodes that the spec rates by; NaN if
        none has ended.
      curve: <float>[points, 2], frames, and the mean return of the interval that ends there.
    """

    score: float
    episodes: int
    training: float
    curve: np.ndarray

    def last_return(self, window: int) -> float:
        """Mean return of the last `window` frames of training; NaN without an episode there.

        Args:
          window: 0: the last interval.
        """
        if not window:
            return self.training
        last = self.curve[self.curve[:, 0] > self.curve[-1, 0] - window, 1]
        known = last[~np.isnan(last)]
        return float(known.mean()) if known.size else math.nan


class Task(NamedTuple):
    """A configuration of a study, with its runs that are done.

    Attributes:
      environment: its name.
      setting: what else the configuration chooses, as name=value; "": nothing.
      configuration: the values of the study's choices.
      runs: in the order of their seeds.
    """

    environment: str
    setting: str
    configuration: Configuration
    runs: list[FinishedRun]

    @property
    def name(self) -> str:
        return ", ".join(filter(None, (self.environment, self.setting)))

    @property
    def scores(self) -> list[float]:
        return [run.score for run in self.runs]

    def training(self, window: int = 0) -> list[float]:
        """The `FinishedRun.last_return` of all runs that have one."""
        returns = [run.last_return(window) for run in self.runs]
        return [one for one in returns if not math.isnan(one)]


class FinishedStudy(NamedTuple):
    """The runs of a study that are done.

    Attributes:
      path: of its directory.
      spec: what was run.
      commits: of the source that ran.
      machines: on which it ran.
      versions: of Python and the packages it ran with.
      tasks: those with a run that is done.
      unscored: how many runs are done, but have no score: no episode ended.
    """

    path: Path
    spec: Spec
    commits: Sequence[str]
    machines: Sequence[str]
    versions: Sequence[str]
    tasks: Sequence[Task]
    unscored: int

    @property
    def name(self) -> str:
        return self.path.name


def read(path: Path) -> FinishedStudy:
    """Reads the files of a study.

    Raises:
      UserError: one is missing or damaged, or no run is done.
    """
    record = directory.read(path)
    if record is None:
        raise UserError(f"There is no study in {path}.")
    if not all((path / name).exists() for name in (directory.RESULTS, results.CURVES)):
        raise UserError(
            f"{path} lacks results.csv or curves.csv: a study writes them when it ends, or with "
            "--results_only."
        )
    spec = spec_lib.from_json(record["spec"], str(path / directory.FILE_NAME))
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in fields.read_table(path / results.CURVES, results.CURVE_COLUMNS):
        key = row["configuration"], row["seed"]
        points.setdefault(key, []).append((float(row["frames"]), float(row["return"] or "nan")))
    tasks: dict[str, Task] = {}
    unscored = 0
    unknown = [(spec.frames * k // results.POINTS, math.nan) for k in range(1, results.POINTS + 1)]
    for row in directory.read_results(path / directory.RESULTS, spec):
        evaluated = int(row["evaluation_episodes"]) > 0
        score = row["evaluation_mean" if evaluated else "final_return"]
        if row["status"] != "done":
            continue
        if not score:
            unscored += 1
            continue
        if row["configuration"] not in tasks:
            values = {choice.name: row[choice.name] for choice in spec.choices if row[choice.name]}
            configuration = Configuration(int(row["configuration"]), values)
            tasks[row["configuration"]] = Task(*_place(spec, values), configuration, [])
        tasks[row["configuration"]].runs.append(
            FinishedRun(
                float(score),
                int(row["evaluation_episodes"]),
                float(row["final_return"] or "nan"),
                np.array(points.get((row["configuration"], row["seed"]), unknown)),
            )
        )
    if not tasks:
        without = " and has a score" if unscored else ""
        raise UserError(f"No run of {path} is done{without}.")
    commits, machines, versions = (
        record.get(name, []) for name in ("commits", "machines", "versions")
    )
    found = list(tasks.values())
    return FinishedStudy(path.resolve(), spec, commits, machines, versions, found, unscored)


def _place(spec: Spec, values: Mapping[str, str]) -> tuple[str, str]:
    """(environment, setting) of a configuration: its name, and the other choices."""
    named = [choice.name for choice in spec.choices if choice.flag in _ENVIRONMENT_FLAGS]
    chosen = [values[name] for name in named if name in values]
    given = [str(spec.flags[flag]) for flag in _ENVIRONMENT_FLAGS if flag in spec.flags]
    setting = ", ".join(f"{name}={value}" for name, value in values.items() if name not in named)
    return [*chosen, *given, Path(spec.game).stem][0], setting
