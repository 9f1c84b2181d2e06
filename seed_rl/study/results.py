"""`results.csv`: one row per run, and `curves.csv`: their learning curves."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seed_rl.common.errors import UserError
from seed_rl.common.system import files
from seed_rl.study import directory, fields, performance
from seed_rl.study.directory import Study, StudyRun
from seed_rl.study.performance import Rating
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
      status: see `StudyRun.status`.
      rating: None until it is done or pruned, or if no episode ended.
      frames_per_s: environment frames per second, without pauses.
      note: why it failed or has no rating.
    """

    run: StudyRun
    status: str
    rating: Rating | None
    frames_per_s: float | None
    note: str = ""


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
    status = run.status(spec)
    if (row := run.record) is not None:
        rate = float(row["frames_per_s"]) if row["frames_per_s"] else None
        if not row["performance"]:
            return Result(run, status, None, rate, row["note"])
        numbers = float(row["performance"]), float(row["final_return"])
        return Result(run, status, Rating(*numbers, int(row["episodes"])), rate)
    rate = performance.frames_per_s(run.logdir)
    note = run.failure or "" if status == "failed" else ""
    if status not in ("done", "pruned"):
        return Result(run, status, None, rate, note)
    rating = performance.rate(run.logdir, spec.frames, spec.performance)
    if rating is None:
        note = f"no {spec.performance.episodes} episode ended"
    return Result(run, status, rating, rate, note)


def performances(results: Sequence[Result]) -> list[Performance]:
    """The configurations of which all runs have ended, in order.

    As in the paper, a configuration is as good as the median of its seeds. A failed run is worse
    than any other: leaving it out would favour values that fail. For the same reason a pruned
    configuration counts, as if its returns had stayed as they were.
    """
    values: dict[int, list[float]] = {}
    configurations: dict[int, Configuration] = {}
    for result in results:
        configuration = result.run.configuration
        configurations[configuration.number] = configuration
        if configuration.pruned and result.rating is None:
            continue  # A seed that did not run.
        value = -math.inf if result.status == "failed" else math.nan
        if result.rating is not None:
            value = result.rating.performance
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
    header = [*RUN_COLUMNS, *names, *RESULT_COLUMNS]
    rows: list[list[object]] = [[*header]]
    for result in results:
        configuration, seed = result.run.configuration, result.run.seed
        if (record := result.run.record) is not None:
            rows.append([record[name] for name in header])
            continue
        rating: tuple[object, ...] = ("", "", "")
        if result.rating is not None:
            rating = (*map(_number, result.rating[:2]), result.rating.episodes)
        rate = "" if result.frames_per_s is None else f"{result.frames_per_s:.0f}"
        scores = result.run.evaluated(study.spec)
        functions = (np.mean, np.std, np.median)
        played = [_number(float(f(scores))) if scores else "" for f in functions]
        sampled = [configuration.values.get(name, "") for name in names]
        note = " ".join(result.note.split())
        row = [configuration.number, seed, *sampled, *rating, *played, len(scores)]
        rows.append([*row, rate, result.status, note])
    _write_curves(study, results)
    return write_table(study.path / directory.RESULTS, rows)


def _write_curves(study: Study, results: Sequence[Result]) -> None:
    spec = study.spec
    rows: list[list[object]] = [["configuration", "seed", "frames", "return"]]
    path = study.path / CURVES
    recorded: dict[tuple[str, str], list[list[object]]] = {}
    for row in fields.read_table(path, CURVE_COLUMNS) if path.exists() else []:
        recorded.setdefault((row["configuration"], row["seed"]), []).append(list(row.values()))
    for run in (result.run for result in results if result.rating is not None):
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
