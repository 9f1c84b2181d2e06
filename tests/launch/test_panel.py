"""What the live panel leaves on a terminal's screen."""

from __future__ import annotations

import dataclasses
import io
import re
import sys
import time

import pytest

from seed_rl.common.run_files.progress import Progress
from seed_rl.launch.panel import Console, History, LivePanel, PatientPanel, PlainPanel, Status

WIDTH = 60
_PARTS = re.compile(r"\x1b\[(\??\d*(?:;\d+)*)([A-Za-z])|(\r)|(\n)|(.)")


def screen(text: str, height: int) -> list[str]:
    """The lines of a terminal, those that have left its top included, after writing `text`."""
    lines, top, row, column = [""], 0, 0, 0
    for number, code, start, down, character in _PARTS.findall(text):
        if code == "A":
            row = max(top, row - int(number or 1))
        elif code == "K":
            lines[row] = ""
        elif start:
            column = 0
        elif down or (character and column == WIDTH):
            row, column = row + 1, 0
        if character:
            lines += [""] * (row + 1 - len(lines))
            line = lines[row].ljust(column)
            lines[row] = line[:column] + character + line[column + 1 :]
            column += 1
        lines += [""] * (row + 1 - len(lines))
        top = max(top, row + 1 - height)
    return lines


@pytest.mark.parametrize(("height", "echo"), [(30, "^C"), (30, ""), (6, ""), (6, "^C")])
def test_one_panel_is_left(height: int, echo: str) -> None:
    """Guards the last screen from parts of earlier panels, also where Ctrl-C is echoed into one."""
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=WIDTH, height=height)
    panel = LivePanel("run", {"logdir": "/runs"}, console, period_s=0.0)
    report = Progress(time.time(), 1, "training", 10, 100, 5.0, 1, None, 0, 1.0, None, 0.0)
    with panel:
        panel.show(Status(None, 0, 1, gone="logdir"))
        assert "/runs" not in output.getvalue()
        panel.show(Status(report, 1, 1))
        output.write(echo)
        panel.say("stopping")
        panel.show(Status(dataclasses.replace(report, devices="cpu"), 1, 1, "stopping"))
        panel.finish("stopped")
    left = screen(output.getvalue(), height)
    assert any("devices" in line for line in left)
    assert [line[:5] for line in left if line.startswith(("╭", "╰", "s"))] == [
        "stopp",
        "╭─ ru",
        "╰────",
        "stopp",
    ]


@pytest.mark.parametrize("live", [False, True])
def test_characters_that_a_terminal_lacks_are_replaced(
    live: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards runs, which ended with UnicodeEncodeError once there were bars to draw."""
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, encoding="ascii"))
    console = Console(force_terminal=True, width=WIDTH, height=30)
    facts = {"logdir": "/\N{LATIN SMALL LETTER E WITH ACUTE}t"}
    panel = PatientPanel(
        LivePanel("run", facts, console, period_s=0.0) if live else PlainPanel("run", facts)
    )
    report = Progress(time.time(), 1, "training", 10, 100, 5.0, 1, 1.0, 3, 1.0, None, 0.0)
    with panel:
        for step in range(3):
            progress = dataclasses.replace(report, train_steps=step, episode_return_mean=step)
            panel.show(Status(progress, 1, 1))
        panel.finish("done")
    sys.stdout.flush()
    written = output.getvalue().decode()
    assert "/?t" in written and "???" not in written and "done" in written


def test_the_history_of_returns_fits_a_line() -> None:
    """Guards the order, the scale and the width of the sparkline, however long a run is."""
    history = History()
    for step, value in ((0, 5.0), (0, 9.0), (1, 5.0)):
        history.add(step, value)
        assert history.sparkline() == ""  # One value, twice.
    history.add(2, 7.0)
    assert history.sparkline() == "▁▁█"
    for step in range(3, 10_000):
        history.add(step, 5.0 + step)
        line = history.sparkline()
        assert list(line) == sorted(line) and 2 < len(line) <= 40
    assert line[0] == "▁" and line[-1] == "█" and len(set(line)) == 8


def test_a_starting_run_says_what_it_waits_for() -> None:
    """Guards half a minute without frames against looking like a run that hangs."""
    report = Progress(time.time(), 1, "starting", 0, 100, 0.0, 0, None, 0, 0.0, None, 0.0)
    played = dataclasses.replace(report, mean_inference_batch=2.0)
    trained = dataclasses.replace(played, phase="training")
    phases = [Status(progress, 1, 1).phase for progress in (None, report, played, trained)]
    assert [phase.rpartition(" ")[2] for phase in phases] == [
        "learner",
        "actors",
        "step",
        "training",
    ]
    assert Status(None, 1, 1, "stopping").phase == "stopping"
