"""Displays a study: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import rich.progress_bar
import rich.text

from seed_rl.common.run_files import progress as progress_lib
from seed_rl.common.run_files.progress import Progress
from seed_rl.common.system import durations
from seed_rl.launch import panel
from seed_rl.study.directory import StudyRun


@dataclasses.dataclass(frozen=True)
class RunStatus:
    """A running run.

    Attributes:
      run: which one.
      progress: its learner's last report; None before the first.
      otherwise: shown in place of a report.
    """

    run: StudyRun
    progress: Progress | None
    otherwise: str = "starting"

    def line(self, frames: int) -> str:
        """Its progress as text."""
        progress = self.progress
        if progress is None:
            return self.otherwise
        parts = [f"{progress.phase} {progress.frames / frames:.0%}"]
        parts.append(f"{progress.frames_per_s:,.0f} frames/s")
        if progress.episode_return_mean is not None:
            parts.append(f"return {progress.episode_return_mean:.4g}")
        if progress.warning:
            parts.append(f"warning: {progress.warning}")
        return ", ".join(parts)


@dataclasses.dataclass(frozen=True)
class StudyStatus:
    """What is shown of a study.

    Attributes:
      running: the runs in progress.
      done: number of finished runs.
      failed: number of failed runs.
      pruned: number of runs that were stopped because others did better.
      total: number of runs.
      frames: environment frames of one run.
      stopping: whether the runs are being saved.
      eta_s: seconds until all have ended; None if unknown.
    """

    running: Sequence[RunStatus]
    done: int
    failed: int
    pruned: int
    total: int
    frames: int
    stopping: bool = False
    eta_s: float | None = None

    def line(self) -> str:
        """The counts as text."""
        parts = [f"{self.done}/{self.total} runs done"]
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self.pruned:
            parts.append(f"{self.pruned} pruned")
        parts.append(f"{len(self.running)} {'stopping' if self.stopping else 'running'}")
        if self.eta_s is not None and not self.stopping:
            parts.append(f"ETA {durations.describe(self.eta_s)}")
        return ", ".join(parts)


def running(run: StudyRun, since: float) -> RunStatus:
    """The state of a run that was started at the Unix time `since`."""
    report = progress_lib.read(run.logdir)
    if report is None or report.time >= since:
        return RunStatus(run, report)
    # The report of an earlier learner.
    return RunStatus(run, None, "evaluating" if report.phase == "done" else "starting")


def create(title: str) -> panel.Panel[StudyStatus]:
    """Creates a live panel on a terminal, a plain one elsewhere."""
    console = panel.Console(highlight=False)
    if console.is_terminal:
        return panel.PatientPanel(_LivePanel(title, console))
    return panel.PatientPanel(_PlainPanel([title], period_s=10.0))


class _PlainPanel(panel.Lines):
    def show(self, status: StudyStatus) -> None:
        runs = [f"{one.run.name}: {one.line(status.frames)}" for one in status.running]
        self.show_line(" | ".join([status.line(), *runs]))


class _LivePanel(panel.Table):
    def show(self, status: StudyStatus) -> None:
        self.show_rows(lambda: _rows(status))


def _rows(status: StudyStatus) -> Iterator[panel.Row]:
    yield "study", status.line()
    ended = status.done + status.failed + status.pruned
    part = sum(one.progress.frames for one in status.running if one.progress) / status.frames
    yield "", rich.progress_bar.ProgressBar(status.total, min(ended + part, status.total))
    for one in status.running:
        yield one.run.name, one.line(status.frames)
        yield "", rich.text.Text(str(one.run.configuration), style="dim")
