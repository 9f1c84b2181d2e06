"""Timing of code blocks for TensorBoard. TensorFlow is imported only when writing."""

from __future__ import annotations

import time

__all__ = ["Aggregator", "ExportingTimer"]


class Aggregator:
    """A running mean."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Discards all values."""
        self._sum = 0.0
        self._count = 0

    def add(self, v: float) -> None:
        """Adds a value."""
        self._sum += v
        self._count += 1

    @property
    def count(self) -> int:
        """Number of values."""
        return self._count

    def average(self) -> float:
        """Mean of the values; 0 if there are none."""
        return self._sum / self._count if self._count else 0.0


class ExportingTimer:
    """Times a block of code and periodically writes the mean in milliseconds.

        timer = ExportingTimer("actor/step_ms", 1000)
        with timer:
            env.step(action)

    Args:
      summary_name: name of the scalar. It goes to the default `tf.summary` writer, if there is
        one; its step is the number of blocks timed so far.
      aggregation_window_size: number of blocks per mean.
    """

    def __init__(self, summary_name: str, aggregation_window_size: int):
        self._name = summary_name
        self._window = aggregation_window_size
        self._aggregator = Aggregator()
        self._times = 0
        self._started = 0.0

    def __enter__(self) -> ExportingTimer:
        self._started = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._aggregator.add(1000 * (time.perf_counter() - self._started))
        self._times += 1
        if self._aggregator.count >= self._window:
            import tensorflow as tf

            tf.summary.scalar(self._name, self._aggregator.average(), step=self._times)
            self._aggregator.reset()
