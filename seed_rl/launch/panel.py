"""Displays a run: a live panel in a terminal, plain lines elsewhere.

The output may go away during the run (a closed terminal, a pipe without a reader, a full disk); the
run then continues silently.
"""

from __future__ import annotations

import dataclasses
import errno
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, NoReturn, Protocol, TypeVar

import rich.console
import rich.live
import rich.panel
import rich.progress_bar
import rich.segment
import rich.table
import rich.text

from seed_rl.common.run_files.progress import SILENCE_S, Progress
from seed_rl.common.system import durations, terminal

if TYPE_CHECKING:
    from typing_extensions import Self  # In `typing` from Python 3.11 on.

S_contra = TypeVar("S_contra", contravariant=True)
S = TypeVar("S")
Row = tuple[str, str | rich.console.RenderableType]
"""Name and value."""


@dataclasses.dataclass(frozen=True)
class Status:
    """What the panel shows.

    Attributes:
      progress: the learner's last report; None before the first.
      alive: number of running actors, and of those on other machines that send calls.
      actors: number of actors in the run.
      doing: what the supervisor is doing, if that is not the learner's phase.
      resumes_from: environment frames of the checkpoint that the run resumes from, if any.
      warnings: problems that the supervisor has noticed.
      gone: name of a fact that no longer holds.
    """

    progress: Progress | None
    alive: int
    actors: int
    doing: str | None = None
    resumes_from: int | None = None
    warnings: tuple[str, ...] = ()
    gone: str | None = None

    @property
    def phase(self) -> str:
        if self.doing:
            return self.doing
        if self.progress is None:
            return "starting: loading the learner"
        if self.progress.phase != "starting":
            return self.progress.phase
        if not self.progress.mean_inference_batch:
            return "starting: waiting for actors"
        return "starting: collecting experience and compiling the training step"


class Panel(Protocol[S_contra]):
    """Shows a run, or several. Used as a context manager while it lasts."""

    def __enter__(self) -> Panel[S_contra]: ...

    def __exit__(self, *_: object) -> None: ...

    def show(self, status: S_contra) -> None:
        """Called several times a second; the panel limits its own refresh rate."""

    def say(self, message: str) -> None:
        """Shows a message immediately and permanently."""

    def finish(self, message: str) -> None:
        """Shows the last status and a closing message."""


def create(title: str, facts: Mapping[str, str]) -> Panel[Status]:
    """Creates a live panel on a terminal, a plain one elsewhere.

    Args:
      title: what is running.
      facts: names and values that do not change, such as addresses.
    """
    console = Console(highlight=False)
    if console.is_terminal:
        return PatientPanel(LivePanel(title, facts, console))
    return PatientPanel(PlainPanel(title, facts))


class Console(rich.console.Console):
    """Raises BrokenPipeError, where Rich would exit the program."""

    def on_broken_pipe(self) -> NoReturn:
        raise


class _AboveCursor:
    """The part of a renderable that fits on the screen, and an empty line.

    The terminal echoes ^C at the cursor. After a full line, that echo would begin another line, and
    Rich would erase one line too few.
    """

    def __init__(self, renderable: rich.console.RenderableType):
        self._renderable = renderable

    def __rich_console__(
        self, console: rich.console.Console, options: rich.console.ConsoleOptions
    ) -> rich.console.RenderResult:
        for line in console.render_lines(self._renderable, options)[: options.size.height - 2]:
            yield from line
            yield rich.segment.Segment.line()
        yield rich.text.Text()


class PatientPanel(Generic[S]):
    """Wraps a panel and goes silent once its output fails."""

    def __init__(self, panel: Panel[S]):
        self._panel = panel
        self._gone = False
        terminal.replace_unknown_characters()

    def __enter__(self) -> PatientPanel[S]:
        self._try(self._panel.__enter__)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._try(self._panel.__exit__, *exc_info)
        try:
            sys.stdout.flush()
        except OSError:
            # Otherwise Python flushes again on exit, and fails with an exit code of its own.
            terminal.drop_output()

    def show(self, status: S) -> None:
        self._try(self._panel.show, status)

    def say(self, message: str) -> None:
        self._try(self._panel.say, message)

    def finish(self, message: str) -> None:
        self._try(self._panel.finish, message)

    def _try(self, show: Callable[..., object], *arguments: object) -> None:
        if self._gone:
            return
        try:
            show(*arguments)
        except OSError as error:
            self._gone = error.errno != errno.ENOSPC  # A full disk may be freed.
        except UnicodeError:  # Of an output that cannot replace characters.
            pass


class Lines:
    """A line every few seconds, for logs. Subclasses have `show`."""

    def __init__(self, heading: Sequence[str], period_s: float):
        self._heading = heading
        self._period_s = period_s
        self._shown = 0.0
        self._line = ""

    def __enter__(self) -> Self:
        for line in self._heading:
            self.say(line)
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show_line(self, line: str, urgent: bool = False) -> None:
        """Shows a line if it is time, or if it is urgent."""
        self._line = line
        if urgent or time.monotonic() - self._shown >= self._period_s:
            self._shown = time.monotonic()
            self.say(line)

    def say(self, message: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {message}", flush=True)

    def finish(self, message: str) -> None:
        self.say(self._line)
        self.say(message)


class PlainPanel(Lines):
    """Lines about one run."""

    def __init__(self, title: str, facts: Mapping[str, str]):
        super().__init__([title, *(f"{name}: {fact}" for name, fact in facts.items())], 5.0)

    def show(self, status: Status) -> None:
        line = " | ".join(f"{name} {value}".strip() for name, value in describe(status))
        # Users wait for the first frames.
        self.show_line(line, urgent="starting" in self._line and status.phase == "training")


class Table:
    """A table at the bottom of the terminal, redrawn twice a second. Subclasses have `show`."""

    def __init__(self, title: str, console: rich.console.Console, period_s: float = 0.5):
        self._title = title
        self._console = console
        self._period_s = period_s
        self._shown = 0.0
        # Transient, so that an error is the last thing on the screen.
        self._live = rich.live.Live(console=console, auto_refresh=False, transient=True)
        self._rows: Callable[[], Iterable[Row]] | None = None

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._erase()

    def show_rows(self, rows: Callable[[], Iterable[Row]]) -> None:
        """Shows what `rows` returns, if it is time."""
        self._rows = rows
        if time.monotonic() - self._shown >= self._period_s:
            self._shown = time.monotonic()
            self._live.update(_AboveCursor(self._draw(rows())), refresh=True)

    def say(self, message: str) -> None:
        style = "red" if message.startswith("error") else "dim"
        self._console.print(rich.text.Text(message, style=style))

    def finish(self, message: str) -> None:
        self._erase()
        if self._rows is not None:
            self._console.print(self._draw(self._rows()))
        self._console.print(rich.text.Text(message, style="bold green"))

    def _erase(self) -> None:
        # Rich would first show all of it, but can only erase what fits on the screen.
        if self._live.is_started:
            self._live.update(rich.text.Text(), refresh=True)
        self._live.stop()

    def _draw(self, rows: Iterable[Row]) -> rich.panel.Panel:
        table = rich.table.Table.grid(padding=(0, 2), expand=True)
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(ratio=1)
        for name, value in rows:
            table.add_row(name, rich.text.Text(value) if isinstance(value, str) else value)
        return rich.panel.Panel(table, title=self._title, title_align="left", border_style="blue")


class History:
    """The mean returns since the panel opened, as a line of bars."""

    _BARS = "▁▂▃▄▅▆▇█"
    _WIDTH = 40

    def __init__(self) -> None:
        self._values: list[float] = []
        self._step = -1
        self._skip = self._skipped = 0  # Of each `_skip` + 1 values, one is kept.

    def add(self, step: int, value: float) -> None:
        """Adds a value, unless it is of the same training step as the last."""
        if step == self._step:
            return
        self._step = step
        self._skipped += 1
        if self._skipped > self._skip:
            self._skipped = 0
            self._values.append(value)
        if len(self._values) == 2 * self._WIDTH:  # From now on, each bar covers twice the time.
            self._values = self._values[1::2]
            self._skip = 2 * self._skip + 1

    def sparkline(self) -> str:
        """The values as bars, the largest as the highest; "" unless two of them differ."""
        low, high = min(self._values, default=0.0), max(self._values, default=0.0)
        if len(self._values) < 2 or low == high:
            return ""
        scale = (len(self._BARS) - 1) / (high - low)
        pairs = -(-len(self._values) // self._WIDTH)
        shown = self._values[::-1][::pairs][::-1]
        return "".join(self._BARS[round((value - low) * scale)] for value in shown)


class LivePanel(Table):
    """A table of one run."""

    def __init__(
        self,
        title: str,
        facts: Mapping[str, str],
        console: rich.console.Console,
        period_s: float = 0.5,
    ):
        super().__init__(title, console, period_s)
        self._facts = facts
        self._history = History()

    def show(self, status: Status) -> None:
        if (progress := status.progress) and progress.episode_return_mean is not None:
            self._history.add(progress.train_steps, progress.episode_return_mean)
        self.show_rows(lambda: self._rows_of(status))

    def _rows_of(self, status: Status) -> Iterator[Row]:
        for name, value in describe(status):
            yield name, value
            bars = not self._console.options.ascii_only  # Which is whether it lacks them.
            if name == "return" and bars and (line := self._history.sparkline()):
                yield "", line
        yield from (fact for fact in self._facts.items() if fact[0] != status.gone)
        progress = status.progress
        if progress is not None and progress.devices:
            yield "devices", progress.devices
        if progress is not None and progress.total_frames:
            yield "", rich.progress_bar.ProgressBar(progress.total_frames, progress.frames)


def describe(status: Status) -> list[tuple[str, str]]:
    """Names and values of the rows to show."""
    actors = f"{status.alive}/{status.actors}"
    warnings = [("warning", text) for text in status.warnings]
    progress = status.progress
    if progress is None:
        resumed = [("frames", _resuming(status.resumes_from))] if status.resumes_from else []
        return [("phase", status.phase), *resumed, ("actors", actors), *warnings]
    share = progress.frames / progress.total_frames if progress.total_frames else 0.0
    starting = progress.phase == "starting" and progress.frames > 0
    frames = _resuming(progress.frames) if starting else f"{progress.frames:,}"
    rows = [
        ("phase", status.phase),
        ("frames", f"{frames} ({share:.1%} of {progress.total_frames:,})"),
        ("frames/s", f"{progress.frames_per_s:,.0f}"),
    ]
    if progress.episode_return_mean is None:
        rows.append(("return", "no episode has ended yet"))
    else:
        rows.append(
            ("return", f"{progress.episode_return_mean:.2f} ({progress.episodes:,} episodes)")
        )
    rows += [
        ("actors", actors),
        ("inference batch", f"{progress.mean_inference_batch:.1f}"),
        ("updates", f"{progress.train_steps:,}"),
    ]
    if progress.eta_s is not None:
        rows.append(("ETA", durations.describe(progress.eta_s)))
    if progress.warning:
        rows.append(("warning", progress.warning))
    silence = time.time() - progress.time
    if silence > SILENCE_S and not warnings:
        rows.append(("warning", f"the learner has been silent for {silence:.0f} s"))
    return rows + warnings


def _resuming(frames: int) -> str:
    return f"resuming from {frames:,}"
