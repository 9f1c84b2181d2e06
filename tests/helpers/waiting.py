"""Waiting for other threads and processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from tests.helpers.system_helpers import Program

T = TypeVar("T")

PATIENCE_S = 240  # Nothing takes this long unless it is broken, even on a busy machine.


def wait_until(condition: Callable[[], T], *, running: Program | None = None) -> T:
    """Waits until `condition()` is true, and returns it; `running` must not exit before."""
    deadline = time.monotonic() + PATIENCE_S
    pause_s = 0.002
    while not (value := condition()):
        if running is not None and running.code is not None:
            raise AssertionError(f"ended with {running.code}:\n{running.text()}")
        if time.monotonic() > deadline:
            raise AssertionError(running.text() if running else "it never happened")
        time.sleep(pause_s)
        pause_s = min(1.5 * pause_s, 0.1)  # Some conditions search all processes.
    return value
