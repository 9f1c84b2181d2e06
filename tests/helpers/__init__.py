"""Helpers shared by tests."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tests.helpers.waiting import PATIENCE_S

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
"""The root of the working tree."""

PROGRAMS = pathlib.Path(__file__).parent / "programs"
"""Programs that tests start as separate processes."""

STANDINS = pathlib.Path(__file__).parent / "standins"
"""Modules in place of packages that cannot be installed from an index."""


def run(
    *command: str | os.PathLike[str],
    code: int | None = None,
    variables: Mapping[str, str] | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end.

    Args:
      *command: the program and its arguments.
      code: the exit code that it must have; None: any.
      variables: of its environment, besides those of this process.
      **options: those of subprocess.run.
    """
    options = {"capture_output": True, "text": True, "timeout": PATIENCE_S, **options}
    if variables is not None:
        options["env"] = {**os.environ, **variables}
    return checked(subprocess.run(command, **options), code)


def checked(
    done: subprocess.CompletedProcess[str], code: int | None
) -> subprocess.CompletedProcess[str]:
    """Returns `done`, which must have ended with the exit code; None: with any."""
    said = f"{done.args} exited with {done.returncode}:\n{done.stdout}{done.stderr}"
    assert code in (None, done.returncode), said
    return done


def errors(text: str) -> list[str]:
    """The error lines for the user in the output of a program."""
    return [line for line in text.splitlines() if line.startswith("error: ")]


def run_python(
    *command: str | os.PathLike[str], **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs `python COMMAND ...` in a separate process; `options` are those of `run`.

    Use the fixture `forks` for code that imports TensorFlow: it saves seconds.
    """
    return run(sys.executable, *command, **options)


def stand_in(path: pathlib.Path, script: str) -> pathlib.Path:
    """Makes a shell script the program at `path`, and returns the path."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def compile_cpp(
    program: pathlib.Path, *sources: str, flags: Sequence[str] = ("-g",)
) -> pathlib.Path:
    """Compiles sources of the repository and returns the program."""
    compiler = [os.environ.get("CXX", "g++"), "-std=c++17", "-O1", "-Wall", "-Werror", "-pthread"]
    paths = [str(REPOSITORY / source) for source in sources]
    run(*compiler, f"-I{REPOSITORY}", *paths, "-o", program, *flags, code=0, timeout=None)
    return program
