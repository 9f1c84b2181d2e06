"""Helpers shared by tests."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Any

from tests.helpers.waiting import PATIENCE_S

PROGRAMS = pathlib.Path(__file__).parent / "programs"
"""Programs that tests start as separate processes."""

STANDINS = pathlib.Path(__file__).parent / "standins"
"""Modules in place of packages that cannot be installed from an index."""


def run_python(
    *command: str | os.PathLike[str], **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs `python COMMAND ...` in a separate process; `options` are those of subprocess.run.

    Use the fixture `forks` for code that imports TensorFlow: it saves seconds.
    """
    options = {"capture_output": True, "text": True, "timeout": PATIENCE_S, **options}
    return subprocess.run([sys.executable, *command], **options)
