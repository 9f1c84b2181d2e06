"""What several tests use."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Any

PROGRAMS = pathlib.Path(__file__).parent / "programs"
"""Programs that tests start as processes of their own."""


def run_python(
    *command: str | os.PathLike[str], **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs `python COMMAND ...` in a process of its own; `options` are those of subprocess.run.

    What imports TensorFlow is run by the fixture `forks`, which saves seconds.
    """
    options = {"capture_output": True, "text": True, "timeout": 120, **options}
    return subprocess.run([sys.executable, *command], **options)
