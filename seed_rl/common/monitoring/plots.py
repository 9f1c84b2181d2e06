"""Draws learning curves: the mean over seeds, smoothed, with an interval.

    seed-rl plot RUN... [--out=curve.png] [--x=frames] [--score] [--tensorboard=DIR]

A RUN is the logdir of a run, a folder of such runs (a study), or a `returns.csv` by any name. Runs
with the same options but the seed are one curve. Of a folder, runs that --restart=fresh has moved
aside, and those without an episode yet, are left out.

- *Smoothed*: the value of a run at a point is the mean return of the episodes that ended in the
  last 5 % of the axis (`--smoothing`), but at least of the last 10.
- *Interval*, of five seeds or more: 95 % of the means of 2,000 bootstrap samples of the seeds. With
  few seeds it is narrower than it should be; tables of studies use Student's t.

The mean is drawn up to the point that all seeds have reached.
"""

from __future__ import annotations

import argparse
import io
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seed_rl.common.errors import UserError, exits
from seed_rl.common.run_files import returns_log, run_record
from seed_rl.common.run_files.returns_log import EpisodeRow
from seed_rl.common.system import files
from seed_rl.common.system.extras import missing_extra, python_for_shell

X_LABELS = {"frames": "environment frames", "hours": "hours"}
SMOOTHING = 0.05
_POINTS = 200
_LONGEST = 60  # Characters of a label.
_EVENTS = "events.out.tfevents.0.plot"  # One name, so that a second plot replaces the first.
_FEWEST = 10  # Episodes in a smoothed value.
_FEWEST_SEEDS = 5  # With an interval.
_RESAMPLES = 2000
_ASIDE = re.compile(r"\.\d{8}-\d{6}$")  # What --restart=fresh adds to a directory's name.
_NOT_COMPARED = run_record.OWN_OPTIONS | {"seed"}


class Curve(NamedTuple):
    """The returns of runs that differ in their seeds.

    Attributes:
      label: text for the legend.
      x: <float>[points], frames or hours.
      seeds: <float>[seeds, points], smoothed returns; NaN beyond the end of a run.
    """

    label: str
    x: np.ndarray
    seeds: np.ndarray

    def mean(self) -> np.ndarray:
        """<float>[points], the mean over seeds; NaN beyond the point that all have reached."""
        return np.mean(self.seeds, 0)

    def interval(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The lower and the upper end of the mean's interval, <float>[points] each.

        None with fewer than five seeds: with three, 95 % of the samples' means span all seeds.
        """
        if len(self.seeds) < _FEWEST_SEEDS:
            return None
        drawn = np.random.default_rng(0).integers(
            len(self.seeds), size=(_RESAMPLES, len(self.seeds))
        )
        means = np.stack([np.mean(column[drawn], -1) for column in self.seeds.T], -1)
        low, high = np.percentile(means, (2.5, 97.5), axis=0)
        return low, high


class Group(NamedTuple):
    """Runs that differ in their seeds.

    Attributes:
      label: what differs from the other groups; else the run's name.
      runs: the episodes of each.
    """

    label: str
    runs: Sequence[Sequence[EpisodeRow]]


def read_groups(places: Sequence[str]) -> list[Group]:
    """Reads runs, grouped by their options; training and evaluation episodes apart.

    Args:
      places: logdirs, folders of logdirs, or files like `returns.csv`.

    Raises:
      UserError: there is no run, or none at one of the places has episodes.
    """
    options: list[dict[str, Any]] = []
    groups: list[tuple[list[str], list[list[EpisodeRow]]]] = []
    seeds: dict[tuple[int, Any], Path] = {}
    found_files = {one[0]: one for place in places for one in _files(Path(place))}
    for file, name, rows in found_files.values():
        record = _record(file)
        found = _options(record)
        if not found or found not in options:
            options.append(found)
            groups.append(([], []))
        index = options.index(found) if found else len(groups) - 1
        seed = record.get("seed")
        if seed is not None and (first := seeds.setdefault((index, seed), file)) != file:
            print(
                f"note: {first.parent} and {file.parent} have the same options and seed, and "
                "count as two seeds",
                file=sys.stderr,
            )
        names, runs = groups[index]
        names.append(name)
        runs.append(rows)
    labels = _labels(options, [names for names, _ in groups])
    return [
        Group(label + (" (evaluation)" if evaluation else ""), chosen)
        for label, (_, runs) in zip(labels, groups, strict=True)
        for evaluation in (False, True)
        if (chosen := [c for run in runs if (c := [r for r in run if r.evaluation == evaluation])])
    ]


def _files(place: Path) -> list[tuple[Path, str, list[EpisodeRow]]]:
    """The files that a command line's argument stands for, with a name and episodes for each."""
    place = place.expanduser().resolve()
    if place.is_file():
        found, name = [place], place.stem
    elif (place / returns_log.FILE_NAME).exists():
        found, name = [place / returns_log.FILE_NAME], place.name
    else:
        patterns = (f"{folder}*/{returns_log.FILE_NAME}" for folder in ("", "runs/"))
        all_files = sorted(file for pattern in patterns for file in place.glob(pattern))
        found = [file for file in all_files if not _moved_aside(file.parent)]
        name = place.name
    if not found:
        raise UserError(f"{place} has no {returns_log.FILE_NAME}. Give the logdirs of runs.")
    begun = [(file, name, rows) for file in found if (rows := _read(file))]
    if not begun:
        raise UserError(f"{place} has no episodes yet. Wait until the first one ends.")
    return begun


def _moved_aside(run: Path) -> bool:
    """Whether a run is an earlier one of another in the same folder."""
    name = _ASIDE.sub("", run.name)
    return name != run.name and run.with_name(name).exists()


def _read(file: Path) -> list[EpisodeRow]:
    try:
        return returns_log.read(file)
    except OSError as error:
        raise UserError(f"Cannot read {file}: {error}.") from None


def _record(file: Path) -> dict[str, Any]:
    """The record of a file's run; {} if it is not known."""
    if file.name != returns_log.FILE_NAME or not (file.parent / run_record.FILE).exists():
        return {}
    return run_record.read(file.parent)


def _options(record: Mapping[str, Any]) -> dict[str, Any]:
    """The options by which runs are grouped; {} if they are not known."""
    if not record:
        return {}
    gin = record.get(run_record.GIN)
    known = {name: value for name, value in record.items() if name not in _NOT_COMPARED}
    known |= gin if isinstance(gin, Mapping) else {}
    return {run_record.PROGRAM: record.get(run_record.PROGRAM), **known}


def _labels(options: Sequence[Mapping[str, Any]], names: Sequence[Sequence[str]]) -> list[str]:
    """What differs between the groups; names of runs where that is unknown or long."""
    known = [one for one in options if one]
    differing = [
        name
        for name in (known[0] if known else ())
        if all(name in one for one in known) and any(one[name] != known[0][name] for one in known)
    ]
    labels = []
    for one, (name, *others) in zip(options, names, strict=True):
        label = ", ".join(_setting(key, one[key]) for key in differing) if one else name
        if len(label) > _LONGEST:
            label = name
        if others:
            label += f" ({len(others) + 1} seeds)"
        labels.append(label.strip() or name)
    return [
        label if labels.count(label) == 1 else f"{label} #{number}"
        for number, label in enumerate(labels, 1)
    ]


def _setting(name: str, value: Any) -> str:
    if name == run_record.PROGRAM:
        return str(value).removeprefix("seed_rl.").removesuffix("_main")
    return f"{name}={value}"


def curve(
    group: Group, x: str = "frames", score: bool = False, smoothing: float = SMOOTHING
) -> Curve:
    """The curve of a group.

    Args:
      group: at least one run.
      x: a key of `X_LABELS`; hours are those since a run's first episode ended.
      score: whether to use the unshaped return.
      smoothing: share of the axis over which returns are averaged.
    """
    axes, returns = [], []
    for rows in group.runs:
        start = min(row.time for row in rows)
        axis = [row.frames if x == "frames" else (row.time - start) / 3600 for row in rows]
        axes.append(np.array(axis, np.float64))
        returns.append(np.array([r.raw_return if score else r.episode_return for r in rows]))
    first, last = max(axis[0] for axis in axes), max(axis[-1] for axis in axes)
    points = np.linspace(first, last, _POINTS if last > first else 1)
    seeds = [
        _smoothed(axis, values, points, smoothing * last)
        for axis, values in zip(axes, returns, strict=True)
    ]
    return Curve(group.label, points, np.array(seeds))


def _smoothed(axis: np.ndarray, values: np.ndarray, points: np.ndarray, width: float) -> np.ndarray:
    """The mean of the values in (point - width, point], and at least of the last `_FEWEST`."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.searchsorted(axis, points, side="right")
    starts = np.minimum(np.searchsorted(axis, points - width, side="right"), ends - _FEWEST)
    starts = np.maximum(starts, 0)
    means = (sums[ends] - sums[starts]) / np.maximum(ends - starts, 1)
    # No value after a run's end, except for its last point, which rounding may put there.
    return np.where(points <= axis[-1] * (1 + 1e-9), means, np.nan)


def figure(width: float, height: float) -> Any:
    """A figure of that many inches.

    Raises:
      UserError: matplotlib is missing.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("plot", "Drawing", error) from error
    # Without pyplot, which may require a display.
    made = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(made)
    return made


def picture(name: str | Path) -> Path:
    """The file that a figure with that name is written to."""
    path = Path(name)
    return path if path.suffix else path.with_suffix(".png")


def save(made: Any, out: str | Path) -> None:
    """Writes a figure to a file, whose extension selects the format; without one, to a PNG.

    Raises:
      UserError: the file cannot be written.
    """
    out, drawn = picture(out), io.BytesIO()
    try:
        made.savefig(drawn, dpi=120, format=out.suffix.lstrip("."))
        files.write_atomically(out, drawn.getvalue())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"Cannot write {out}: {reason}") from None


class Point(NamedTuple):
    """A result beside curves over frames, drawn as a diamond.

    Attributes:
      label: what it is called.
      x: after how many frames.
      y: the return.
      deviation: drawn as a bar.
    """

    label: str
    x: float
    y: float
    deviation: float


class Panel(NamedTuple):
    """Curves over the same axis.

    Attributes:
      title: above it.
      x: a key of `X_LABELS`.
      curves: what is drawn.
      points: drawn beside them.
    """

    title: str
    x: str
    curves: Sequence[Curve]
    points: Sequence[Point] = ()


def _in_readable_units(panel: Panel) -> tuple[str, Sequence[Curve]]:
    """The label of the x-axis, and the curves: over minutes if all end within an hour."""
    if panel.x != "hours" or any(one.x[-1] > 1 for one in panel.curves):
        return X_LABELS[panel.x], panel.curves
    return "minutes", [one._replace(x=60 * one.x) for one in panel.curves]


def draw(panels: Sequence[Panel], out: str | Path, y_label: str = "episode return") -> None:
    """Draws panels of curves, four in a row: means with intervals, and a thin line per seed.

    Raises:
      UserError: matplotlib is missing, or the file cannot be written.
    """
    columns = min(len(panels), 4)
    rows = math.ceil(len(panels) / columns)
    width, height = (8.0, 4.5) if len(panels) == 1 else (3.6 * columns + 1, 2.8 * rows + 0.4)
    made = figure(width, height)
    grid = made.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    from matplotlib import color_sequences  # `figure` has explained it if it is missing.

    # Ten colours, then lighter ones.
    distinct = color_sequences["tab20"][::2] + color_sequences["tab20"][1::2]
    colors: dict[str, Any] = {}  # The same in all panels.
    for axes, panel in zip(grid.flat, panels, strict=False):
        x_label, curves = _in_readable_units(panel)
        for one in curves:
            _draw_curve(axes, one, colors.setdefault(one.label, distinct[len(colors) % 20]))
        for point in panel.points:
            color = colors.setdefault(point.label, distinct[len(colors) % 20])
            how = {"fmt": "D", "markersize": 5, "capsize": 3, "color": color}
            axes.errorbar(point.x, point.y, point.deviation, label=point.label, **how)
        axes.set_title(panel.title)
        axes.set_xlabel(x_label)
        axes.grid(alpha=0.3)
        if panel.x == "frames":
            axes.ticklabel_format(axis="x", style="sci", scilimits=(0, 0), useMathText=True)
    for axes in grid[:, 0]:
        axes.set_ylabel(y_label)
    _add_legend(made, columns)
    save(made, out)


def _add_legend(made: Any, columns: int) -> None:
    """One for all panels, below them; of a single panel, within it."""
    explained = {
        label: handle
        for axes in made.axes
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if len(made.axes) > 1 and explained:
        how = {"loc": "outside lower center", "ncols": min(len(explained), columns + 1)}
        made.legend(explained.values(), explained, **how)
    elif explained:
        made.axes[0].legend(fontsize="small")


def draw_groups(
    groups: Sequence[Group],
    out: str | Path,
    axes: Sequence[str] = tuple(X_LABELS),
    score: bool = False,
    smoothing: float = SMOOTHING,
    title: str = "",
) -> list[Curve]:
    """Draws groups of runs over each of some axes; returns the curves over the first.

    Raises:
      UserError: as `draw`.
    """
    panels = [
        Panel(title, x, [curve(group, x, score, smoothing) for group in groups]) for x in axes
    ]
    draw(panels, out)
    return list(panels[0].curves)


def _draw_curve(axes: Any, one: Curve, color: Any) -> None:
    axes.plot(one.x, one.mean(), color=color, linewidth=2, label=one.label or None)
    if (interval := one.interval()) is not None:
        axes.fill_between(one.x, *interval, color=color, alpha=0.2, linewidth=0)
    if len(one.seeds) > 1:
        for seed in one.seeds:
            axes.plot(one.x, seed, color=color, alpha=0.35, linewidth=0.8)


def write_tensorboard(
    groups: Sequence[Group], directory: Path, score: bool = False, smoothing: float = SMOOTHING
) -> None:
    """Writes the curves for TensorBoard, a run for each group.

    In TensorBoard the mean and its interval are scalars over frames ("step") or over time
    ("relative"), which is the time since the first episode, averaged over the seeds.

    Raises:
      UserError: TensorBoard is missing, or the directory cannot be written.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError as error:
        raise UserError(
            f"Writing for TensorBoard needs its package ({error}). Install: "
            f"{python_for_shell()} -m pip install tensorboard"
        ) from error
    for group in groups:
        one = curve(group, "frames", score, smoothing)
        hours = np.mean([_hours_at(rows, one.x) for rows in group.runs], 0)
        values = {"mean": one.mean()}
        if (interval := one.interval()) is not None:
            values["low"], values["high"] = interval
        events = [Event(file_version="brain.Event:2")]
        for k, frames in enumerate(one.x):
            scalars = [
                Summary.Value(tag=f"returns/{name}", simple_value=value[k])
                for name, value in values.items()
                if not np.isnan(value[k])
            ]
            summary = Summary(value=scalars)
            events.append(Event(step=round(frames), wall_time=3600 * hours[k], summary=summary))
        folder = directory / group.label.replace("/", "_")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with files.open_no_link(folder / _EVENTS, "wb") as file:
                writer = RecordWriter(file)
                for event in events:
                    writer.write(event.SerializeToString())
        except OSError as error:
            raise UserError(f"Cannot write to {folder}: {error.strerror}.") from None


def _hours_at(rows: Sequence[EpisodeRow], frames: np.ndarray) -> np.ndarray:
    times = np.array([row.time for row in rows])
    return np.interp(frames, [row.frames for row in rows], (times - times[0]) / 3600)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="seed-rl plot",
        description="Draws learning curves: the mean over seeds, with a 95 % interval from five "
        "seeds on. Runs that differ only in the seed form one curve, labelled with the options "
        "that set it apart from the others.",
    )
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="logdir of a run, or a folder of runs, such as a study",
    )
    parser.add_argument(
        "--out", type=files.expanded, default="curve.png", help="file to write: .png, .svg or .pdf"
    )
    parser.add_argument("--x", choices=tuple(X_LABELS), help="x-axis (default: a panel for each)")
    parser.add_argument("--score", action="store_true", help="plot unshaped returns (game scores)")
    parser.add_argument(
        "--smoothing",
        type=float,
        default=SMOOTHING,
        help="share of the axis over which returns are averaged (default: 0.05)",
    )
    parser.add_argument("--title", default="", help="title of the plot")
    parser.add_argument(
        "--tensorboard",
        type=files.expanded,
        metavar="DIR",
        help="also write the curves to DIR, for TensorBoard",
    )
    return parser


@exits
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program; returns its exit code."""
    options = _parser().parse_args(arguments)
    how = options.score, max(0.0, options.smoothing)
    groups = read_groups(options.runs)
    axes = [options.x] if options.x else list(X_LABELS)
    curves = draw_groups(groups, options.out, axes, *how, options.title)
    if options.tensorboard:
        write_tensorboard(groups, options.tensorboard, *how)
    for one, group in zip(curves, groups, strict=True):
        means = one.mean()
        known = np.flatnonzero(~np.isnan(means))
        end = "no point that all seeds have reached"
        if known.size:
            x = one.x[known[-1]]
            at = f"{x:,.0f}" if axes[0] == "frames" else f"{x:.3g}"
            end = f"mean return {means[known[-1]]:.4g} at {at} {axes[0]}"
        print(f"{one.label}: {sum(map(len, group.runs)):,} episodes, {end}")
    print(f"Wrote {picture(options.out)}.")
    if options.tensorboard:
        print(f"Interactive: tensorboard --logdir={options.tensorboard}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
