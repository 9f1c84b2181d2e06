"""Renders terminal output as a picture: reads coloured text from stdin, writes an SVG file.

tmux capture-pane -e -p -t SESSION | .venv/bin/python scripts/terminal_picture.py FILE.svg
"""

from __future__ import annotations

import io
import sys

import rich.console
import rich.text


def main() -> None:
    text = rich.text.Text.from_ansi(sys.stdin.read().strip("\n"))
    width = max(line.cell_len for line in text.split())
    console = rich.console.Console(record=True, width=width, file=io.StringIO())
    console.print(text)
    console.save_svg(sys.argv[1], title="")


if __name__ == "__main__":
    main()
