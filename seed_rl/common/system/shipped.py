"""Files that come with the package, found from any working directory."""

from __future__ import annotations

import os
from pathlib import Path

LAYOUT = Path(__file__).resolve().parents[3]
"""The directory of the package `seed_rl`."""


def find(name: str) -> Path | None:
    """A file in the working directory or else beside the package; None: there is none.

    Args:
      name: a path, such as seed_rl/football/workstation.flags; a leading ~ is expanded.
    """
    expanded = os.path.expanduser(name)
    return next((p for p in (Path(expanded), LAYOUT / expanded) if p.is_file()), None)
