"""Plots the learning curves of runs.

    python -m seed_rl.common.monitoring.plots RUN_DIR... --out=curve.png [--x=hours] [--score]

Each `RUN_DIR` is a logdir with a `returns.csv`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seed_rl.common.errors import UserError
from seed_rl.common.run_files import returns_log
from seed_rl.common.system.extras import missing_extra


class Curve(NamedTuple):
    """A line of the plot, one point per episode.

    Attributes:
      label: text for the legend.
      x: <float>[episodes] environment frames, or hours.
      returns: <float>[episodes] return of each episode.
      means: <float>[episodes] mean return over the last `window` episodes.
    """

    label: str
    x: np.ndarray
    returns: np.ndarray
    means: np.ndarray


def read_curves(
    run_dirs: Sequence[str], x: str = "frames", score: bool = False, window: int = 100
) -> list[Curve]:
    """Reads the curves of runs, separately for training and evaluation episodes.

    Args:
      run_dirs: logdirs of the runs.
      x: "frames", or "hours" since the first episode ended.
      score: whether to use the unshaped return.
      window: number of episodes per mean.

    Raises:
      UserError: a directory has no episodes.
    """
    curves = []
    for run_dir in run_dirs:
        path = Path(run_dir) / returns_log.FILE_NAME
        try:
            rows = returns_log.read(path)
        except OSError as error:
            raise UserError(
                f"Cannot read {path}: {error.strerror}. Give the logdirs of runs."
            ) from None
        if not rows:
            raise UserError(f"{path} has no episodes yet. Wait until the first one ends.")
        start = rows[0].time
        for evaluation in (False, True):
            chosen = [row for row in rows if row.evaluation == evaluation]
            if not chosen:
                continue
            returns = np.array([row.raw_return if score else row.episode_return for row in chosen])
            axis = [row.frames if x == "frames" else (row.time - start) / 3600 for row in chosen]
            label = Path(run_dir).resolve().name + (" (evaluation)" if evaluation else "")
            curves.append(Curve(label, np.array(axis), returns, _running_mean(returns, window)))
    return curves


def draw(curves: Sequence[Curve], out: str, x: str = "frames", title: str = "") -> None:
    """Writes the plot to the file `out`, whose extension selects the format.

    Raises:
      UserError: matplotlib is missing or the file cannot be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("plot", "Plotting curves", error) from error
    # Without pyplot, which may require a display.
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.add_subplot()
    for number, curve in enumerate(curves):
        color = f"C{number % 10}"
        axes.plot(curve.x, curve.returns, ".", color=color, markersize=2, alpha=0.2)
        axes.plot(curve.x, curve.means, color=color, label=curve.label)
    axes.set_xlabel("environment frames" if x == "frames" else "hours")
    axes.set_ylabel("episode return")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend()
    try:
        figure.savefig(out, dpi=120)
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot write {out}: {error}") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m seed_rl.common.monitoring.plots",
        description="Plots the learning curves of runs.",
    )
    parser.add_argument("run_dirs", nargs="+", metavar="RUN_DIR", help="logdir of a run")
    parser.add_argument("--out", default="curve.png", help="file to write: .png, .svg or .pdf")
    parser.add_argument("--x", choices=("frames", "hours"), default="frames", help="x-axis")
    parser.add_argument("--score", action="store_true", help="plot unshaped returns (game scores)")
    parser.add_argument("--window", type=int, default=100, help="number of episodes per mean")
    parser.add_argument("--title", default="", help="title of the plot")
    options = parser.parse_args(arguments)
    try:
        curves = read_curves(options.run_dirs, options.x, options.score, max(1, options.window))
        draw(curves, options.out, options.x, options.title)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for curve in curves:
        print(f"{curve.label}: {len(curve.x)} episodes, final mean return {curve.means[-1]:.4g}")
    print(f"Wrote {options.out}.")
    return 0


def _running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Mean over the last `window` values, fewer at the start."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - window)
    return (sums[ends] - sums[starts]) / (ends - starts)


if __name__ == "__main__":
    sys.exit(main())
