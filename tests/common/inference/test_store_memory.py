"""Without memory, calls of the inference store fail, and what is tried again is recorded once."""

from __future__ import annotations

import os
import pathlib
import subprocess

from tests.helpers import run


def test_steps_are_recorded_once_whichever_allocation_fails(
    tmp_path: pathlib.Path, repository: pathlib.Path
) -> None:
    """Guards the data of a learner that is short of memory, and calls that wait for failed ones."""
    program = tmp_path / "memory"
    sources = [
        repository / "tests" / "common" / "inference" / "native" / "store_memory.cc",
        repository / "seed_rl" / "common" / "native" / "unrolls" / "inference_store.cc",
    ]
    compiler = [os.environ.get("CXX", "g++"), "-std=c++17", "-O1", "-g", "-Wall", "-Werror"]
    build = [*compiler, "-pthread", f"-I{repository}", *map(str, sources), "-o", str(program)]
    subprocess.run(build, check=True)
    run(program, code=0)
