"""`results.csv`: one row per run, and `curves.csv`: their learning curves."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seed_rl.common.errors import UserError
from seed_rl.common.system import files
from seed_rl.study import directory, fields, performance
from seed_rl.study.directory import Study, StudyRun
from seed_rl.study.sampling import Configuration
from seed_rl.study.spec import RESULT_COLUMNS, RUN_COLUMNS, Spec

CURVES = "curves.csv"
CURVE_COLUMNS: fields.Columns = {
    **dict.fromkeys(("configuration", "seed", "frames"), int),
    "return": fields.optional(float),
}
POINTS = 50
"""Points of a learning curve."""


class Result(NamedTuple):
    """The result of a run.

    Attributes:
      run: which one.
      cells: its `RESULT_COLUMNS` of results.csv. Performance and final return are "" until it is
        done or pruned, or if no episode ended.
    """

    run: StudyRun
    cells: Mapping[str, str]


class Performance(NamedTuple):
    """How good a configuration is.

    Attributes:
      configuration: which one.
      value: the median performance of its seeds, in which failed runs count as -inf.
    """

    configuration: Configuration
    value: float


def collect(study: Study) -> list[Result]:
    """The results of all runs so far."""
    return [collect_run(run, study.spec) for run in study.runs()]


def collect_run(run: StudyRun, spec: Spec) -> Result:
    """The result of one run so far."""
    if run.record is not None:
        return Result(run, run.record)
    status = run.status(spec)
    cells = {**dict.fromkeys(RESULT_COLUMNS, ""), "status": status}
    if status == "failed":
        cells["note"] = " ".join((run.failure or "").split())
    elif status in ("done", "pruned"):
        rating = performance.rate(run.logdir, spec.frames, spec.performance)
        if rating is None:
            cells["note"] = f"no {spec.performance.episodes} episode ended"
        else:
            cells["performance"] = _number(rating.performance)
            cells["final_return"] = _number(rating.final_return)
            cells["episodes"] = str(rating.episodes)
    if (rate := performance.frames_per_s(run.logdir)) is not None:
        cells["frames_per_s"] = f"{rate:.0f}"
    scores = run.evaluated(spec)
    cells["evaluation_episodes"] = str(len(scores))
    if scores:
        for name, function in (("mean", np.mean), ("std", np.std), ("median", np.median)):
            cells[f"evaluation_{name}"] = _number(float(function(scores)))
    return Result(run, cells)


def performances(results: Sequence[Result]) -> list[Performance]:
    """The configurations of which all runs have ended, in order.

    As in the paper, a configuration is as good as the median of its seeds. A run that failed, or in
    which no episode ended, is worse than any other: leaving it out would favour the values that
    cause it. So a pruned configuration counts, too, as if its returns had stayed as they were.
    """
    values: dict[int, list[float]] = {}
    configurations: dict[int, Configuration] = {}
    for result in results:
        configuration = result.run.configuration
        configurations[configuration.number] = configuration
        rated = result.cells["performance"]
        if configuration.pruned and not rated:
            continue  # A seed that did not run.
        unrated = -math.inf if result.cells["status"] in ("failed", "done") else math.nan
        value = float(rated) if rated else unrated
        values.setdefault(configuration.number, []).append(value)
    return [
        Performance(configurations[number], float(np.median(seeds)))
        for number, seeds in values.items()
        if not any(map(math.isnan, seeds))
    ]


def write(study: Study, results: Sequence[Result]) -> Path:
    """Writes the table; returns its path.

    Raises:
      UserError: it cannot be written.
    """
    names = [choice.name for choice in study.spec.choices]
    rows: list[list[object]] = [[*RUN_COLUMNS, *names, *RESULT_COLUMNS]]
    for run, cells in results:
        sampled = [run.configuration.values.get(name, "") for name in names]
        known = [cells[name] for name in RESULT_COLUMNS]
        rows.append([run.configuration.number, run.seed, *sampled, *known])
    _write_curves(study, results)
    return write_table(study.path / directory.RESULTS, rows)


def _write_curves(study: Study, results: Sequence[Result]) -> None:
    spec = study.spec
    rows: list[list[object]] = [["configuration", "seed", "frames", "return"]]
    path = study.path / CURVES
    recorded: dict[tuple[str, str], list[list[object]]] = {}
    for row in fields.read_table(path, CURVE_COLUMNS) if path.exists() else []:
        recorded.setdefault((row["configuration"], row["seed"]), []).append(list(row.values()))
    for run in (result.run for result in results if result.cells["performance"]):
        if run.record is not None:
            rows += recorded.get((str(run.configuration.number), str(run.seed)), [])
            continue
        means = performance.curve(run.logdir, spec.frames, spec.performance, POINTS)
        rows += [
            [run.configuration.number, run.seed, spec.frames * k // POINTS, _number(value)]
            for k, value in enumerate(means, 1)
        ]
    write_table(path, rows)


def write_table(path: Path, rows: Sequence[Sequence[object]]) -> Path:
    """Writes rows as CSV; returns the path.

    Raises:
      UserError: the file cannot be written.
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    try:
        files.write_atomically(path, text.getvalue())
    except OSError as error:
        raise UserError(f"Cannot write {path}: {error.strerror}.") from error
    return path


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6g}"
