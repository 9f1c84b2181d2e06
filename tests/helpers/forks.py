"""Python programs that start at once: forks of a process that has already imported TensorFlow.

The import takes seconds, too much for tests that run a program many times. TensorFlow has not
started any work when the process forks, so that programs can still configure devices. Tests of what
a program imports, or of how it starts, run a real interpreter instead.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

from tests.helpers import PROGRAMS, checked

TIMEOUT_S = 800  # Less than a test may take, see pyproject.toml.


class Forks(contextlib.AbstractContextManager["Forks"]):
    """Starts the process to fork with the first program; used by one thread at a time."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[str] | None = None

    def run(
        self,
        *command: str | os.PathLike[str],
        cwd: str | os.PathLike[str] = ".",
        code: int | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs `python COMMAND ...`; SIGALRM kills it after `TIMEOUT_S`.

        Args:
          *command: `-m` and a module, or a file; then the program's own arguments.
          cwd: the directory to run in.
          code: the exit code that it must have; None: any.
        """
        server = self._server = self._server or subprocess.Popen(
            [sys.executable, PROGRAMS / "fork_server.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert server.stdin is not None and server.stdout is not None
        arguments = [os.fspath(argument) for argument in command]
        with tempfile.TemporaryDirectory() as folder:
            request: dict[str, Any] = dict(
                command=arguments, cwd=os.path.abspath(cwd), output=folder, timeout_s=TIMEOUT_S
            )
            print(json.dumps(request), file=server.stdin, flush=True)
            ended = int(server.stdout.readline())
            output, errors = (pathlib.Path(folder, n).read_text() for n in ("stdout", "stderr"))
        return checked(subprocess.CompletedProcess(arguments, ended, output, errors), code)

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.communicate()
