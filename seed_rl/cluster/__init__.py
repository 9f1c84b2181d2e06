"""One process of a run on several machines (`python -m seed_rl.cluster`), whatever started it."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Prints a line for the process's log, which begins with this program's name."""
    print(f"seed_rl.cluster: {text}", file=sys.stderr, flush=True)
