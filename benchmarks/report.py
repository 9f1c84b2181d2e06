"""Shared by all benchmarks: options, interleaved rounds, tables and the JSON file.

Contestants are compared within one run and in interleaved rounds, because machines differ, and the
same machine varies from minute to minute: `interleave` runs them, `median_ratio` compares them
round by round. Tables are printed as Markdown, ready for the documentation.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import rich.box
import rich.console
import rich.table

import seed_rl
from seed_rl.common.system import processor

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def parser(description: str, *, seconds: float, rounds: int = 3) -> argparse.ArgumentParser:
    """A parser with the common options, to which a benchmark adds its own.

    Args:
      description: for --help, e.g. the module's docstring.
      seconds: default length of one measurement.
      rounds: default number of rounds.
    """
    result = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    result.add_argument("--json", metavar="FILE", help="also write the results to FILE")
    result.add_argument(
        "--seconds", type=float, default=seconds, help="length of a measurement (%(default)s)"
    )
    result.add_argument(
        "--rounds", type=int, default=rounds, help="measurements per contestant (%(default)s)"
    )
    return result


def interleave(contestants: Mapping[K, Callable[[], T]], rounds: int) -> dict[K, list[T]]:
    """Runs each contestant once per round, in every other round in reverse order."""
    results: dict[K, list[T]] = {name: [] for name in contestants}
    for i in range(rounds):
        names = list(contestants)
        for name in reversed(names) if i % 2 else names:
            results[name].append(contestants[name]())
    return results


def median_ratio(values: Sequence[float], references: Sequence[float]) -> float:
    """The median over rounds of value / reference; NaN without measurements."""
    ratios = [v / r for v, r in zip(values, references, strict=True) if r]
    return statistics.median(ratios) if ratios else float("nan")


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints a Markdown table; numbers are right-aligned, floats have three digits."""
    table = rich.table.Table(box=rich.box.MARKDOWN)
    for i, column in enumerate(columns):
        numeric = all(isinstance(row[i], (int, float)) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(_format, row))
    # Never truncate to the terminal's width.
    console = rich.console.Console(highlight=False, width=400)
    with console.capture() as capture:
        console.print(table)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    print(title, "", *filter(None, lines), "", sep="\n")


def write_json(path: str | None, results: Mapping[str, Any]) -> None:
    """Writes `results` and a description of the machine to `path`, if not None."""
    if path is None:
        return
    document = {**results, "machine": machine()}
    pathlib.Path(path).write_text(json.dumps(document, indent=2) + "\n")
    print(f"Results written to {path}")


def machine() -> dict[str, Any]:
    """The hardware and software that the figures depend on."""
    return {
        "cpu": processor.model(),
        "cores": processor.cores(),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "system": platform.platform(),
        "seed_rl": seed_rl.__version__,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _format(cell: object) -> str:
    if not isinstance(cell, float):
        return f"{cell:,}" if isinstance(cell, int) else str(cell)
    if cell != cell:
        return "–"
    return f"{cell:,.0f}" if abs(cell) >= 100 else f"{cell:.3g}"
