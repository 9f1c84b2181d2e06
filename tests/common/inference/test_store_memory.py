"""Without memory, calls of the inference store fail, and what is tried again is recorded once."""

from __future__ import annotations

import pathlib

import pytest

from tests.helpers import compile_cpp, run


@pytest.mark.slow  # It compiles.
def test_steps_are_recorded_once_whichever_allocation_fails(tmp_path: pathlib.Path) -> None:
    """Guards the data of a learner that is short of memory, and calls that wait for failed ones."""
    program = compile_cpp(
        tmp_path / "memory",
        "tests/common/inference/native/store_memory.cc",
        "seed_rl/common/native/unrolls/inference_store.cc",
    )
    run(program, code=0)
