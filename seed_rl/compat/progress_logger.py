"""Metrics logged from inside a loss, as in existing SEED code.

    session = logger.log_session()                  # in the loss, on each replica
    logger.log(session, "V/mean", tf.reduce_mean(values))
    return loss, session
    ...
    logger.step_end(session, strategy, frames)      # after `strategy.run`, in the same tf.function

Losses of this package return their metrics instead; see `metrics.MeanMetrics`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

Session = dict[str, Any]
"""Scalars by name; a nest, so tf.functions and replicas can return it."""


class ProgressLogger:
    """Periodically writes means of the values logged by training steps to TensorBoard.

    Inside a `tf.function` a step costs one addition to a vector, however many values it logs.

    Args:
      summary_writer: from `tf.summary.create_file_writer`; None: writes nothing.
      initial_period: seconds until the first write.
      period_factor: growth of the period with each write.
      max_period: upper limit of the period, in seconds.
      starting_step: first value of the step axis; a number, tensor or variable.
    """

    def __init__(
        self,
        summary_writer: tf.summary.SummaryWriter | None = None,
        initial_period: float = 0.1,
        period_factor: float = 1.01,
        max_period: float = 10.0,
        starting_step: int | tf.Tensor = 0,
    ):
        self._initial_period = initial_period
        self._period_factor = period_factor
        self._max_period = max_period
        # By the names logged together: sums of the values since the last write, then their number.
        self._sums: dict[tuple[str, ...], tf.Variable] = {}
        self._callback: Callable[[], None] | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        with tf.device("/cpu:0"):
            self._step = tf.Variable(int(starting_step), dtype=tf.int64, trainable=False)
        self._writer = summary_writer
        self._last_write = (time.monotonic(), int(starting_step))

    def reset(
        self,
        summary_writer: tf.summary.SummaryWriter | None = None,
        starting_step: int | tf.Tensor = 0,
    ) -> None:
        """Drops the values logged so far and restarts the step axis."""
        self._writer = summary_writer
        self._step.assign(int(starting_step))
        for variable in self._sums.values():
            variable.assign(tf.zeros_like(variable))
        self._last_write = (time.monotonic(), int(starting_step))

    def start(self, logging_callback: Callable[[], None] | None = None) -> None:
        """Starts the writer thread.

        Args:
          logging_callback: called before each write, with the default writer and step of
            `tf.summary` set, to write further values.
        """
        if self._thread is not None:
            raise RuntimeError("The logger is already started.")
        self._callback = logging_callback
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="progress-logger", daemon=True)
        self._thread.start()

    def shutdown(self) -> None:
        """Stops the thread and writes the remaining values."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None
            self._write()

    def log_session(self) -> Session:
        """A new, empty session."""
        return {}

    def log(self, session: Session, name: str, value: Any) -> None:
        """Adds a scalar; values of other shapes are averaged."""
        session[name] = tf.reduce_mean(tf.cast(value, tf.float32))

    def log_session_from_dict(self, dic: Mapping[str, Any]) -> Session:
        """A session with these values."""
        session = self.log_session()
        for name, value in dic.items():
            self.log(session, name, value)
        return session

    def step_end(
        self,
        session: Session,
        strategy: tf.distribute.Strategy | None = None,
        step_increment: int | tf.Tensor = 1,
    ) -> None:
        """Adds the session of one training step, eagerly or inside a tf.function.

        Args:
          session: returned by the loss, or by `strategy.run` of it.
          strategy: averages values over its replicas; None: the session is not from `strategy.run`.
          step_increment: environment frames of the training step.
        """
        if session:
            names = tuple(sorted(session))
            values = [_mean_over_replicas(session[name], strategy) for name in names]
            self._variable(names).assign_add(tf.stack([*values, 1.0]))
        self._step.assign_add(tf.cast(step_increment, tf.int64))

    def _variable(self, names: tuple[str, ...]) -> tf.Variable:
        if names not in self._sums:
            with tf.init_scope(), tf.device("/cpu:0"):
                self._sums[names] = tf.Variable(tf.zeros([len(names) + 1]), trainable=False)
        return self._sums[names]

    def _run(self) -> None:
        period = self._initial_period
        while not self._stop.wait(period):
            self._write()
            period = min(self._max_period, period * self._period_factor)

    def _harvest(self) -> dict[str, tuple[float, float]]:
        """By name, sum and number (not zero) of the values since the last call."""
        harvest: dict[str, tuple[float, float]] = {}
        for names, variable in list(self._sums.items()):
            total = variable.read_value()
            # Subtracted rather than reset: a step may have been added in between. A sum that is not
            # finite must be reset, or it would stay so.
            variable.assign_sub(total)
            if not bool(tf.reduce_all(tf.math.is_finite(total))):
                variable.assign(tf.zeros_like(variable))
            *sums, count = total.numpy().tolist()
            if count:
                for name, value in zip(names, sums, strict=True):
                    earlier, number = harvest.get(name, (0.0, 0.0))
                    harvest[name] = earlier + value, number + count
        return harvest

    def _write(self) -> None:
        step = int(self._step.numpy())
        harvest = self._harvest()
        if self._writer is None:
            return
        now = time.monotonic()
        with self._writer.as_default(step=step):
            if self._callback is not None:
                self._callback()
            for name, (value, count) in harvest.items():
                tf.summary.scalar(name, value / count)
            elapsed = max(now - self._last_write[0], 1e-9)
            tf.summary.scalar("speed/steps_per_sec", (step - self._last_write[1]) / elapsed)
        self._last_write = (now, step)
        self._writer.flush()


def _mean_over_replicas(value: Any, strategy: tf.distribute.Strategy | None) -> tf.Tensor:
    if strategy is None:
        return tf.cast(value, tf.float32)
    results = strategy.experimental_local_results(value)
    return tf.add_n([tf.cast(result, tf.float32) for result in results]) / len(results)
