"""Displays a study: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

import rich.console
import rich.panel
import rich.progress_bar
import rich.table
import rich.text

from seed_rl.common.run_files import progress as progress_lib
from seed_rl.common.run_files.progress import Progress
from seed_rl.common.system import durations
from seed_rl.launch.panel import Console, Live, Panel, PatientPanel
from seed_rl.study.directory import StudyRun


@dataclasses.dataclass(frozen=True)
class RunStatus:
    """A running run.

    Attributes:
      run: which one.
      progress: its learner's last report; None before the first.
      otherwise: what it does without a report.
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
      running: the runs at work.
      done: number of finished runs.
      failed: number of failed runs.
      pruned: number of runs that were stopped because others do better.
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


def create(title: str) -> Panel[StudyStatus]:
    """Creates a live panel on a terminal, a plain one elsewhere."""
    console = Console(highlight=False)
    if console.is_terminal:
        return PatientPanel(_LivePanel(title, console))
    return PatientPanel(_PlainPanel(title))


class _PlainPanel:
    """A line every few seconds, for logs."""

    def __init__(self, title: str, period_s: float = 10.0):
        self._title = title
        self._period_s = period_s
        self._shown = 0.0

    def __enter__(self) -> _PlainPanel:
        self.say(self._title)
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, status: StudyStatus) -> None:
        if time.monotonic() - self._shown < self._period_s:
            return
        self._shown = time.monotonic()
        runs = [f"{one.run.name}: {one.line(status.frames)}" for one in status.running]
        self.say(" | ".join([status.line(), *runs]))

    def say(self, message: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {message}", flush=True)

    def finish(self, message: str) -> None:
        self.say(message)


class _LivePanel:
    """A table at the bottom of the terminal, redrawn twice a second."""

    def __init__(self, title: str, console: rich.console.Console, period_s: float = 0.5):
        self._title = title
        self._console = console
        self._period_s = period_s
        self._shown = 0.0
        self._live = Live(console)

    def __enter__(self) -> _LivePanel:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, status: StudyStatus) -> None:
        if time.monotonic() - self._shown >= self._period_s:
            self._shown = time.monotonic()
            self._live.update(self._draw(status))

    def say(self, message: str) -> None:
        style = "red" if message.startswith("error") else "dim"
        self._console.print(rich.text.Text(message, style=style))

    def finish(self, message: str) -> None:
        self._live.stop()
        self._console.print(rich.text.Text(message, style="bold"))

    def _draw(self, status: StudyStatus) -> rich.panel.Panel:
        table = rich.table.Table.grid(padding=(0, 2), expand=True)
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(ratio=1)
        table.add_row("study", rich.text.Text(status.line()))
        ended = status.done + status.failed + status.pruned
        part = sum(one.progress.frames for one in status.running if one.progress) / status.frames
        table.add_row(
            "", rich.progress_bar.ProgressBar(status.total, min(ended + part, status.total))
        )
        for one in status.running:
            table.add_row(one.run.name, rich.text.Text(one.line(status.frames)))
            table.add_row("", rich.text.Text(str(one.run.configuration), style="dim"))
        return rich.panel.Panel(table, title=self._title, title_align="left", border_style="blue")
