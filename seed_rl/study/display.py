"""Displays a study: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import rich.progress_bar
import rich.text

from seed_rl.common.run_files import progress
from seed_rl.common.system import durations
from seed_rl.launch import panel
from seed_rl.study.directory import StudyRun


@dataclasses.dataclass(frozen=True)
class RunStatus:
    """A running run.

    Attributes:
      run: which one.
      line: its progress as text.
      share: how much of its frames is done; 0 while it starts, or is evaluated.
    """

    run: StudyRun
    line: str
    share: float = 0.0


@dataclasses.dataclass(frozen=True)
class StudyStatus:
    """What is shown of a study.

    Attributes:
      running: the runs in progress.
      ended: how many runs are done, have failed, or were pruned because others did better.
      total: number of runs.
      stopping: whether the runs are being saved.
      eta_s: seconds until all have ended; None if unknown.
    """

    running: Sequence[RunStatus]
    ended: Mapping[str, int]
    total: int
    stopping: bool = False
    eta_s: float | None = None

    def line(self) -> str:
        """The counts as text."""
        parts = [f"{self.ended['done']}/{self.total} runs done"]
        parts += [f"{self.ended[how]} {how}" for how in ("failed", "pruned") if self.ended[how]]
        parts.append(f"{len(self.running)} {'stopping' if self.stopping else 'running'}")
        if self.eta_s is not None and not self.stopping:
            parts.append(f"ETA {durations.describe(self.eta_s)}")
        return ", ".join(parts)


def running(run: StudyRun, since: float, frames: int) -> RunStatus:
    """The state of a run of `frames` frames that was started at the Unix time `since`."""
    report = progress.read(run.logdir)
    if report is None:
        return RunStatus(run, "starting")
    if report.time < since:  # The report of an earlier learner.
        return RunStatus(run, "evaluating" if report.phase == "done" else "starting")
    share = report.frames / frames
    parts = [f"{report.phase} {share:.0%}", f"{report.frames_per_s:,.0f} frames/s"]
    if report.episode_return_mean is not None:
        parts.append(f"return {report.episode_return_mean:.4g}")
    if report.warning:
        parts.append(f"warning: {report.warning}")
    return RunStatus(run, ", ".join(parts), share)


def create(title: str) -> panel.Panel[StudyStatus]:
    """Creates a live panel on a terminal, a plain one elsewhere."""
    console = panel.Console(highlight=False)
    if console.is_terminal:
        return panel.PatientPanel(_LivePanel(title, console))
    return panel.PatientPanel(_PlainPanel([title], period_s=10.0))


class _PlainPanel(panel.Lines):
    def show(self, status: StudyStatus) -> None:
        runs = [f"{one.run.name}: {one.line}" for one in status.running]
        self.show_line(" | ".join([status.line(), *runs]))


class _LivePanel(panel.Table):
    def show(self, status: StudyStatus) -> None:
        self.show_rows(lambda: _rows(status))


def _rows(status: StudyStatus) -> Iterator[panel.Row]:
    yield "study", status.line()
    ended = sum(status.ended.values()) + sum(one.share for one in status.running)
    yield "", rich.progress_bar.ProgressBar(status.total, min(ended, status.total))
    for one in status.running:
        yield one.run.name, one.line
        yield "", rich.text.Text(str(one.run.configuration), style="dim")
