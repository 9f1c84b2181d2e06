"""The results of studies as Markdown and pictures: seed-rl study aggregate STUDY...

A STUDY is a directory with the files `study.json`, `results.csv` and `curves.csv` of a study. A
copy of these three is enough to make tables and pictures again.
"""

from __future__ import annotations

import argparse
import math
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from seed_rl.common.errors import UserError
from seed_rl.common.monitoring import plots as curves
from seed_rl.common.system import files
from seed_rl.study import directory, finished, plots, runner, statistics
from seed_rl.study.finished import FinishedRun, FinishedStudy, Task
from seed_rl.study.references import Reference, comparable, read_references
from seed_rl.study.statistics import Interval, Scores

ZERO, ONE = "random", "human"
"""The methods whose scores are 0 and 1 in normalized scores by default."""
_OPTIONAL = ("overview", "comparison")
"""Sections of several studies, of which a page may lack the markers."""
_STATISTICS = (
    ("IQM", statistics.iqm),
    ("median", statistics.median),
    ("mean", statistics.mean),
    ("optimality gap", statistics.optimality_gap),
)


def markdown(
    study: FinishedStudy, references: Sequence[Reference], with_sources: bool = True
) -> str:
    """What was run, and a table of its scores beside published ones, and where these are from."""
    known = _known([study], references)
    parts = [_protocol(study), _table(study, known)]
    if with_sources and known:
        parts.append(_sources(known))
    return "\n\n".join(parts) + "\n"


def _known(studies: Sequence[FinishedStudy], references: Sequence[Reference]) -> list[Reference]:
    """The published scores that are beside those of any of the studies."""
    found = [
        row
        for study in studies
        for row in comparable(references, study.spec, [task.environment for task in study.tasks])
    ]
    return list(dict.fromkeys(found))


def _sources(known: Sequence[Reference]) -> str:
    """How and where scores were published, each once, after the methods that have it."""
    methods: dict[str, dict[str, None]] = {}
    for row in known:
        methods.setdefault(f"{row.protocol} ({row.source})", {})[row.method] = None
    return " ".join(f"{'; '.join(names)}: {published}." for published, names in methods.items())


def _protocol(study: FinishedStudy) -> str:
    spec = study.spec
    command = shlex.join(runner.training(spec, study.tasks[0].configuration))
    episodes = min(run.episodes for task in study.tasks for run in task.runs)
    scores = f"Scores are {spec.performance.episodes} returns of the last interval."
    if episodes:
        actions = ", with sampled actions" if spec.evaluation_actions == "sampled" else ""
        scores = f"Scores are means of {episodes} episodes of the final checkpoint{actions}."
    done = sum(len(task.runs) for task in study.tasks) + study.unscored
    planned = spec.configurations * spec.seeds
    left = "" if done == planned else f"; {done} of {planned} runs are done"
    if study.unscored:
        left += f"; runs without a score, which are left out: {study.unscored}"
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
    for task in study.tasks:
        mean = statistics.mean_of_seeds(task.scores)
        published = {titles[row]: row.text() for row in known if row.task == task.environment}
        lines.append(
            [
                *(task.name, f"**{number(mean.estimate)}**", _interval(mean)),
                ", ".join(map(number, task.scores)),
                _in_training(study, task),
                *(published.get(method, "") for method in methods),
            ]
        )
    return table(lines)


def _in_training(study: FinishedStudy, task: Task) -> str:
    returns = task.training()
    text = _estimate(statistics.mean_of_seeds(returns)) if returns else ""
    if 0 < len(returns) < len(task.runs):
        text += f", {len(returns)} of {len(task.runs)} seeds"
    if text and study.spec.performance.episodes == "evaluation":
        text += ", evaluation episodes"
    return text


def overview(
    studies: Sequence[FinishedStudy], references: Sequence[Reference], folder: Path
) -> str:
    """A table of all tasks, by game and environment, with a row for each published score.

    These are the references after as many frames of which several seeds are known.

    Args:
      studies: all of them.
      references: published scores.
      folder: of the page, for its links.
    """
    lines = [["", "task", "agent", "frames", "seeds", "score", "in training"]]
    lines[0] += ["compared with", "theirs", "difference"]
    rows = [(study, task) for study in studies for task in study.tasks]
    games = list(dict.fromkeys(study.spec.game for study in studies))
    environments = list(dict.fromkeys(task.environment for _, task in rows))
    rows.sort(
        key=lambda row: (games.index(row[0].spec.game), environments.index(row[1].environment))
    )
    shown = ""
    for study, task in rows:
        spec = study.spec
        link = os.path.relpath(study.path / directory.FILE_NAME, folder)
        ours = [
            *("" if spec.game == shown else spec.game, task.name),
            *(f"{spec.agent} ([{study.name}]({link}))", f"{spec.frames / 1e6:g}M"),
            *(str(len(task.runs)), _estimate(statistics.mean_of_seeds(task.scores))),
            _in_training(study, task),
        ]
        for theirs in _compared(study, task, references) or [[""] * 3]:
            lines.append([*ours, *theirs])
            ours = [""] * len(ours)
        shown = spec.game
    return f"{table(lines)}\n\n{_sources(_known(studies, references))}\n"


def _compared(study: FinishedStudy, task: Task, references: Sequence[Reference]) -> list[list[str]]:
    """Cells for each published score: what it is, and how much higher ours, measured likewise."""
    cells = []
    for row in comparable(references, study.spec, [task.environment]):
        ours = task.scores
        if row.in_training(study.spec):
            if study.spec.performance.episodes == "evaluation":
                continue  # Its training returns are in no file.
            ours = task.training(row.window)
        if (difference := row.difference(ours)) is None:
            continue
        text = f"{'+' if difference.estimate > 0 else ''}{_estimate(difference)}"
        if len(ours) < len(task.runs):  # The worst may be missing.
            text = f"{len(ours)} of {len(task.runs)} seeds"
        title = row.title(study.spec, task.configuration.values)
        cells.append([title, row.text(), text])
    return cells


def normalized(
    studies: Sequence[FinishedStudy], references: Sequence[Reference], unit: str
) -> list[Scores]:
    """The scores of each study on the tasks that all share.

    [] if a task has no score of `unit` after as many frames (or of any number), or that is 0.

    Args:
      studies: one or more.
      references: with the scores of `unit`, and of `ZERO` if that is not 0.
      unit: the method whose score is 1.
    """
    tasks = [{task.name: task for task in study.tasks} for study in studies]
    shared = [name for name in tasks[0] if all(name in others for others in tasks)]
    environments = {tasks[0][name].environment for name in shared}
    found: list[Scores] = []
    for study, of_study in zip(studies, tasks, strict=True):
        known = comparable(references, study.spec, environments)
        ones = {row.task: row.score for row in known if row.method == unit}
        zeros = dict.fromkeys(environments, 0.0)
        zeros |= {row.task: row.score for row in known if row.method == ZERO}
        if not environments or any(ones.get(e) in (None, zeros[e]) for e in environments):
            return []
        scores = []
        for task in (of_study[name] for name in shared):
            zero, one = zeros[task.environment], ones[task.environment]
            scores.append([(score - zero) / (one - zero) for score in task.scores])
        found.append(scores)
    return found


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
    if math.isclose(of.low, of.high):  # The mean of equal scores is rounded.
        return "all equal"
    return f"{number(of.low, form)} to {number(of.high, form)}"


def number(value: float, form: str = "") -> str:
    """`value` in a format; by default with the decimals that matter: 5,819 or 17.3 or 0.42."""
    if form:
        return format(value, form)
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def _check_names(studies: Sequence[FinishedStudy]) -> None:
    names = [study.name for study in studies]
    for name in names:
        if names.count(name) > 1 or name in _OPTIONAL:
            raise UserError(
                f"Studies are named by their directories, and {name} cannot be the name of one "
                "here: rename a directory."
            )


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
    studies = [finished.read(path) for path in options.studies]
    _check_names(studies)
    references = read_references(options.references) if options.references else []
    several = len(studies) > 1
    with_sources = not (several or _has_overview(options.page))  # They are below the overview.
    sections = {study.name: markdown(study, references, with_sources) for study in studies}
    folder = (options.page or studies[0].path).resolve().parent
    if several:
        sections["overview"] = overview(studies, references, folder)
    for game, panels in pictures(studies, references).items():
        specs = [study.spec for study in studies if study.spec.game == game]
        kinds = dict.fromkeys(spec.performance.episodes for spec in specs)
        single = studies[0].path / "curves.png"
        out = single if len(studies) == 1 else folder / f"{Path(game).stem}.png"
        curves.draw(panels, out, f"{' or '.join(kinds)} return")
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
    """For each game, a panel per environment, with a curve for each study and setting.

    The panels show published scores after as many frames, too, if several seeds are known.
    """
    drawn: dict[str, dict[str, curves.Panel]] = {}
    for study, task in ((one, task) for one in studies for task in one.tasks):
        panels = drawn.setdefault(study.spec.game, {})
        panel = panels.get(task.environment, curves.Panel(task.environment, "frames", []))
        name = study.name if len(studies) > 1 else ""
        label = ", ".join(filter(None, (name, task.setting)))
        points = [
            curves.Point(row.method, row.frames, row.score, row.deviation or 0)
            for row in comparable(references, study.spec, [task.environment])
            if row.seeds > 1
        ]
        panels[task.environment] = panel._replace(
            curves=[*panel.curves, _curve(label, task.runs)],
            points=list(dict.fromkeys([*panel.points, *points])),
        )
    return {game: list(panels.values()) for game, panels in drawn.items()}


def _curve(label: str, runs: Sequence[FinishedRun]) -> curves.Curve:
    """The curve of a task, without runs in which no episode ended; all have the same points."""
    drawn = [run for run in runs if not np.isnan(run.curve[:, 1]).all()] or runs
    return curves.Curve(label, runs[0].curve[:, 0], np.array([run.curve[:, 1] for run in drawn]))


def _has_overview(page: Path | None) -> bool:
    return page is not None and page.is_file() and b"<!-- overview -->" in page.read_bytes()


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
        if "overview" not in sections and "<!-- overview -->" in text:
            print(f"note: the overview in {page} needs all of its studies; it was not updated.")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"Cannot update {page}: {reason}.") from error
