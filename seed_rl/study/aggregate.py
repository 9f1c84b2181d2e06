"""The results of studies as Markdown and pictures: seed-rl study aggregate STUDY...

A STUDY is a directory with the files `study.json`, `results.csv` and `curves.csv` of a study. A
copy of these three is enough to make tables and pictures again.
"""

from __future__ import annotations

import argparse
import itertools
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seed_rl.common.errors import UserError
from seed_rl.common.monitoring import plots as curves
from seed_rl.common.system import files
from seed_rl.study import directory, fields, plots, results, runner, statistics
from seed_rl.study import spec as spec_lib
from seed_rl.study.percentiles import Interval
from seed_rl.study.references import ONE, ZERO, Reference, comparable, read_references
from seed_rl.study.sampling import Configuration
from seed_rl.study.spec import Spec
from seed_rl.study.statistics import Scores

_OPTIONAL = ("overview", "comparison")
"""Sections of several studies, of which a page may lack the markers."""
_STATISTICS = (
    ("IQM", statistics.iqm),
    ("median", statistics.median),
    ("mean", statistics.mean),
    ("optimality gap", statistics.optimality_gap),
)


class FinishedRun(NamedTuple):
    """A run that is done.

    Attributes:
      seed: 1, 2, ...
      score: mean score of its evaluation, or the training return if there is none.
      episodes: how many it was evaluated for.
      training: mean training return of the last interval; NaN if no episode has ended.
      curve: <float>[points, 2], frames, and the mean training return of the interval that ends
        there.
    """

    seed: int
    score: float
    episodes: int
    training: float
    curve: np.ndarray


class FinishedStudy(NamedTuple):
    """The runs of a study that are done.

    Attributes:
      name: of its directory.
      spec: what was run.
      commits: of the source that ran.
      machines: on which it ran.
      versions: of the packages it ran with.
      configurations: by name of the task, the values of its choices.
      tasks: the runs of each task, by the same names.
    """

    name: str
    spec: Spec
    commits: Sequence[str]
    machines: Sequence[str]
    versions: Sequence[str]
    configurations: Mapping[str, Configuration]
    tasks: Mapping[str, Sequence[FinishedRun]]

    def scores(self, task: str) -> list[float]:
        return [run.score for run in self.tasks[task]]

    def training(self, task: str, window: str = "") -> list[float]:
        """Mean training returns of the last `window` frames; "": of the last interval.

        Runs of which no episode has ended are left out.
        """
        runs = self.tasks[task]
        returns = [run.training for run in runs]
        if window:
            first = self.spec.frames - float(window)
            returns = [run.curve[run.curve[:, 0] > first, 1].mean() for run in runs]
        return [one for one in returns if not math.isnan(one)]

    def place(self, task: str) -> tuple[str, str]:
        """(environment, setting) of a task; the latter is "" unless the study varies one."""
        values = self.configurations[task].values
        parts = list(itertools.starmap(_part_of_task, values.items()))
        flags = self.spec.flags
        named = [part for part in parts if "=" not in part]
        environment = (
            ", ".join(named) or flags.get("game") or flags.get("env_name") or self.spec.game
        )
        return str(environment), ", ".join(part for part in parts if "=" in part)


def read(path: Path) -> FinishedStudy:
    """Reads the files of a study.

    Raises:
      UserError: one is missing or damaged, or no run is done.
    """
    record = directory.read(path)
    if record is None:
        raise UserError(f"There is no study in {path}.")
    if not all((path / name).exists() for name in (results.FILE_NAME, results.CURVES)):
        raise UserError(
            f"{path} lacks results.csv or curves.csv: a study writes them when it ends, or with "
            "--results_only."
        )
    spec = spec_lib.from_json(record["spec"], str(path / directory.FILE_NAME))
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in fields.read_table(path / results.CURVES):
        key = row["configuration"], row["seed"]
        points.setdefault(key, []).append((float(row["frames"]), float(row["return"] or "nan")))
    configurations: dict[str, Configuration] = {}
    tasks: dict[str, list[FinishedRun]] = {}
    unknown = [(spec.frames * k // results.POINTS, math.nan) for k in range(1, results.POINTS + 1)]
    for row in fields.read_table(path / results.FILE_NAME):
        score = row["evaluation_mean"] or row["final_return"]
        if row["status"] != "done" or not score:
            continue
        values = {choice.name: row[choice.name] for choice in spec.choices if row[choice.name]}
        task = ", ".join(itertools.starmap(_part_of_task, values.items())) or spec.game
        configurations[task] = Configuration(int(row["configuration"]), values)
        tasks.setdefault(task, []).append(
            FinishedRun(
                int(row["seed"]),
                float(score),
                int(row["evaluation_episodes"]),
                float(row["final_return"] or "nan"),
                np.array(points.get((row["configuration"], row["seed"]), unknown)),
            )
        )
    if not tasks:
        raise UserError(f"No run of {path} is done.")
    name = path.resolve().name
    commits, machines, versions = (
        record.get(what, []) for what in ("commits", "machines", "versions")
    )
    return FinishedStudy(name, spec, commits, machines, versions, configurations, tasks)


def _part_of_task(choice: str, value: str) -> str:
    """Pong, but action_persistence=32: numbers and booleans mean nothing without their name."""
    says_it = value[0].isalpha() and value not in ("True", "False")
    return value if says_it else f"{choice}={value}"


def markdown(study: FinishedStudy, references: Sequence[Reference]) -> str:
    """What was run, and a table of its scores beside published ones."""
    known = comparable(references, study.spec, study.tasks)
    parts = [_protocol(study), _table(study, known)]
    sources = dict.fromkeys(f"{row.method}: {row.protocol} ({row.source})" for row in known)
    if sources:
        parts.append("; ".join(sources) + ".")
    return "\n\n".join(parts) + "\n"


def _protocol(study: FinishedStudy) -> str:
    spec, task = study.spec, next(iter(study.tasks))
    command = shlex.join(runner.training(spec, study.configurations[task]))
    episodes = min(run.episodes for runs in study.tasks.values() for run in runs)
    scores = "Scores are training returns of the last interval."
    if episodes:
        actions = ", with sampled actions" if spec.evaluation_actions == "sampled" else ""
        scores = f"Scores are means of {episodes} episodes of the final checkpoint{actions}."
    done, planned = sum(map(len, study.tasks.values())), spec.configurations * spec.seeds
    left = "" if done == planned else f"; {done} of {planned} runs are done"
    commits = ", ".join(study.commits) or "not recorded"
    machines = f" On {', '.join(study.machines)}." if study.machines else ""
    versions = f" With {'; '.join(study.versions)}." if study.versions else ""
    others = "and likewise for the other rows. " if len(study.tasks) > 1 else ""
    return (
        f"    ./run_local.sh {command}\n\n{others}{spec.description} {spec.frames:,} frames, "
        f"seeds 1 to {spec.seeds}{left}. {scores}{machines}{versions} Commit: {commits}."
    )


def _table(study: FinishedStudy, known: Sequence[Reference]) -> str:
    titles = {row: row.title(study.spec) for row in known}
    methods = list(dict.fromkeys(titles.values()))
    lines = [["", "mean", "95 % interval", "each seed", "in training", *methods]]
    for task, runs in study.tasks.items():
        mean = statistics.mean_of_seeds(study.scores(task))
        published = {titles[row]: row.text() for row in known if row.task == task}
        returns = study.training(task)
        training = _estimate(statistics.mean_of_seeds(returns)) if returns else ""
        if 0 < len(returns) < len(runs):
            training += f", {len(returns)} of {len(runs)} seeds"
        lines.append(
            [
                *(task, f"**{number(mean.estimate)}**", _interval(mean)),
                ", ".join(number(run.score) for run in runs),
                training,
                *(published.get(method, "") for method in methods),
            ]
        )
    return table(lines)


def overview(studies: Sequence[FinishedStudy], references: Sequence[Reference]) -> str:
    """A table of all tasks, by game and environment, each beside one comparable published score.

    That is the first of the references after as many frames whose spread over seeds is known.
    """
    lines = [["", "task", "agent", "frames", "score", "seeds"]]
    lines[0] += ["compared with", "theirs", "ours", "difference"]
    games = list(dict.fromkeys(study.spec.game for study in studies))
    rows = [(study, task) for study in studies for task in study.tasks]
    order = list(dict.fromkeys(study.place(task)[0] for study, task in rows))
    rows.sort(key=lambda row: (games.index(row[0].spec.game), order.index(row[0].place(row[1])[0])))
    shown = ""
    for study, task in rows:
        spec, scores = study.spec, study.scores(task)
        lines.append(
            [
                "" if spec.game == shown else spec.game,
                ", ".join(filter(None, study.place(task))),
                f"{spec.agent} ([{study.name}]({study.name}/{directory.FILE_NAME}))",
                *(f"{spec.frames / 1e6:g}M", _estimate(statistics.mean_of_seeds(scores))),
                *(str(len(scores)), *_compared(study, task, references)),
            ]
        )
        shown = spec.game
    return table(lines) + "\n"


def _compared(study: FinishedStudy, task: str, references: Sequence[Reference]) -> list[str]:
    """What is published, its score, our mean measured likewise, and whether they differ."""
    for row in comparable(references, study.spec, [task]):
        ours = study.training(task, row.window) if row.in_training else study.scores(task)
        if (p := row.p_value(ours)) is not None:
            mean = float(np.mean(ours))
            verdict = "undecided" if p > 0.05 else "ahead" if mean > float(row.score) else "behind"
            shown = f"{p:.2g}" if p >= 0.001 else "< 0.001"
            return [row.title(study.spec), row.text(), number(mean), f"{verdict} (p {shown})"]
    return [""] * 4


def normalized(
    studies: Sequence[FinishedStudy], references: Sequence[Reference], unit: str
) -> list[Scores]:
    """The scores of each study on the tasks that all share; [] if a task has no score of `unit`.

    Args:
      studies: one or more.
      references: with the scores of `unit`, and of `ZERO` if that is not 0.
      unit: the method whose score is 1.
    """
    tasks = [task for task in studies[0].tasks if all(task in study.tasks for study in studies)]
    ones = {row.task: float(row.score) for row in references if row.method == unit}
    zeros = {row.task: float(row.score) for row in references if row.method == ZERO}
    if not tasks or not all(task in ones for task in tasks):
        return []

    def scores(study: FinishedStudy, task: str) -> list[float]:
        zero = zeros.get(task, 0.0)
        return [(score - zero) / (ones[task] - zero) for score in study.scores(task)]

    return [[scores(study, task) for task in tasks] for study in studies]


def comparison(names: Sequence[str], scores: Sequence[Scores], unit: str) -> str:
    """A table of normalized scores, and each study's probability of being better than the first."""
    lines = [["", *(name for name, _ in _STATISTICS)]]
    for name, one in zip(names, scores, strict=True):
        found = [statistics.estimate(statistic, one) for _, statistic in _STATISTICS]
        lines.append([name, *(_estimate(part, ".2f") for part in found)])
    text = f"{table(lines)}\n\n"
    text += f"Over {len(scores[0])} tasks; 1 is {unit}. In brackets, 95 % intervals.\n"
    for name, one in zip(names[1:], scores[1:], strict=True):
        better = statistics.estimate(statistics.improvement, [*one, *scores[0]])
        text += (
            f"The probability that {name} is better than {names[0]} is "
            f"{_estimate(better, '.2f')}.\n"
        )
    return text


def table(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, the first row its head."""
    head, *rest = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, "|---" * len(rows[0]) + "|", *rest])


def _estimate(of: Interval, form: str = "") -> str:
    return f"{number(of.estimate, form)} ({_interval(of, form)})"


def _interval(of: Interval, form: str = "") -> str:
    if math.isnan(of.low):
        return "one seed"
    if of.low == of.high:
        return "all equal"
    return f"{number(of.low, form)} to {number(of.high, form)}"


def number(value: float, form: str = "") -> str:
    """`value` in a format; by default with the decimals that matter: 5,819 or 17.3 or 0.42."""
    if form:
        return format(value, form)
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def main(arguments: Sequence[str]) -> int:
    """Runs the program; returns its exit code.

    Raises:
      UserError: a study or file cannot be read or written.
    """
    parser = argparse.ArgumentParser(
        prog="seed-rl study aggregate",
        description="Writes the results of studies as Markdown, and draws their learning curves.",
        epilog="See docs/studies.md.",
    )
    parser.add_argument("studies", nargs="+", type=Path, metavar="STUDY", help="a directory")
    parser.add_argument("--references", type=Path, help="published scores, a CSV file")
    parser.add_argument("--unit", default=ONE, help=f"whose score is 1 (default: {ONE})")
    parser.add_argument(
        "--page",
        type=Path,
        help="a Markdown file with lines <!-- NAME --> and <!-- end of NAME --> to update",
    )
    options = parser.parse_args(arguments)
    studies = [read(path) for path in options.studies]
    references = read_references(options.references) if options.references else []
    sections = {study.name: markdown(study, references) for study in studies}
    if len(studies) > 1:
        sections["overview"] = overview(studies, references)
    for game, panels in pictures(studies, references).items():
        first = options.studies[0]
        out = first / "curves.png" if len(studies) == 1 else first.parent / f"{game}.png"
        curves.draw(panels, out, "training return")
    if scores := normalized(studies, references, options.unit):
        names = [study.name for study in studies]
        sections["comparison"] = comparison(names, scores, options.unit)
        profiles = [statistics.profile(one, plots.THRESHOLDS) for one in scores]
        plots.draw_profiles(
            dict(zip(names, profiles, strict=True)),
            options.unit,
            options.studies[0] / "profile.png",
        )
    if options.page is None:
        print("\n".join(sections.values()), end="")
    else:
        update_page(options.page, sections)
    return 0


def pictures(
    studies: Sequence[FinishedStudy], references: Sequence[Reference]
) -> dict[str, list[curves.Panel]]:
    """Of each game, a panel for each environment, with a curve for each study and its settings.

    The panels show the published training returns after as many frames.
    """
    drawn: dict[str, dict[str, list[curves.Curve]]] = {}
    points: dict[str, dict[str, curves.Point]] = {}
    tasks = [(study, task) for study in studies for task in study.tasks]
    for study, task in tasks:
        environment, setting = study.place(task)
        name = study.name if len(studies) > 1 else ""
        panel = drawn.setdefault(study.spec.game, {}).setdefault(environment, [])
        panel.append(_curve(", ".join(filter(None, (name, setting))), study.tasks[task]))
        for row in comparable(references, study.spec, [task]):
            if row.in_training:
                numbers = float(row.frames), float(row.score), float(row.deviation or 0)
                points.setdefault(environment, {})[row.method] = curves.Point(row.method, *numbers)
    return {
        game: [
            curves.Panel(title, "frames", panel, list(points.get(title, {}).values()))
            for title, panel in found.items()
        ]
        for game, found in drawn.items()
    }


def _curve(label: str, runs: Sequence[FinishedRun]) -> curves.Curve:
    """The curve of a task, without runs in which no episode ended; all have the same points."""
    drawn = [run for run in runs if not np.isnan(run.curve[:, 1]).all()] or runs
    return curves.Curve(label, runs[0].curve[:, 0], np.array([run.curve[:, 1] for run in drawn]))


def update_page(page: Path, sections: Mapping[str, str]) -> None:
    """Replaces what is between the markers of sections in a Markdown file.

    Args:
      page: with lines <!-- NAME --> and <!-- end of NAME -->.
      sections: Markdown by name. Those of several studies need no markers.

    Raises:
      UserError: the page lacks markers, or cannot be read or written.
    """
    try:
        text = page.read_text(encoding="utf-8")
        for name, section in sections.items():
            before, begin, rest = text.partition(f"<!-- {name} -->\n")
            _, end, after = rest.partition(f"<!-- end of {name} -->\n")
            if end:
                text = f"{before}{begin}\n{section}\n{end}{after}"
            elif name not in _OPTIONAL:
                raise UserError(
                    f"{page} has no place for {name}. Add two lines: <!-- {name} --> and "
                    f"<!-- end of {name} -->"
                )
        files.write_atomically(page, text)
    except OSError as error:
        raise UserError(f"Cannot update {page}: {error.strerror}.") from error
