"""The clock behind an actor's timing logs."""

from __future__ import annotations

import time

from absl import logging


class ActorClock:
    """Measures an actor's time in its environments and waiting for actions."""

    def __init__(self, task: int, size: int, period_s: float | None):
        self._task = task
        self._size = size
        self._period_s = period_s
        self.start()

    def start(self) -> None:
        """Begins a new period, after an answer."""
        self._began = self._mark = time.monotonic()
        self._in_env = 0.0
        self._steps = 0

    def stepped(self) -> None:
        """Records that the environments have stepped."""
        now = time.monotonic()
        self._in_env += now - self._mark
        self._mark = now

    def answered(self) -> float:
        """Records the end of a step; returns the time."""
        self._mark = now = time.monotonic()
        self._steps += 1
        if self._period_s is not None and now - self._began >= self._period_s:
            elapsed = now - self._began
            logging.info(
                "Actor %d: %.0f steps/s; %.0f%% of the time in environments, %.0f%% waiting for "
                "actions.",
                self._task,
                self._steps * self._size / elapsed,
                100 * self._in_env / elapsed,
                100 * (1 - self._in_env / elapsed),
            )
            self.start()
        return now
