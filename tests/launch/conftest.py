"""Fixtures of the supervisor's tests."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.helpers.run_helpers import Run, is_locked
from tests.helpers.waiting import wait_until


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def start(*arguments: str, name: str = "run", **options: Any) -> Run:
        runs.append(Run(tmp_path / name, *arguments, **options))
        return runs[-1]

    yield start
    for run in runs:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()
    wait_until(lambda: not any(is_locked(run) for run in runs))
