"""Your own code in a training run: `callbacks=` of `program.main`, `seed_rl.train` and
`experiment.run`.

    class StopWhenGood(Callback):
        def on_report(self, report):
            if report.mean_return is not None and report.mean_return > 450:
                self.run.stop("good enough")

No TensorFlow here: actors import the programs that name callbacks.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seed_rl.common.run_files.progress import Progress
from seed_rl.common.run_files.returns_log import EpisodeRow


@dataclasses.dataclass(frozen=True)
class Report:
    """The state of a run, reported every `--log_period_secs` and at the end.

    Attributes:
      progress: frames, frames/s, training steps, and so on.
      metrics: the new point in TensorBoard, by tag: floats, and <float64>[k] for histograms.
      episodes: those that ended since the last report, including evaluation (`EpisodeRow`).
      mean_return: how good the agent is: mean return of the newest episodes of each evaluation
        environment, equally many of each and at least 20 in all; or of each training environment,
        at least 100 in all, if none are for evaluation. None until that many have ended.
      last: whether this is the last report of the run.
    """

    progress: Progress
    metrics: Mapping[str, Any]
    episodes: tuple[EpisodeRow, ...]
    mean_return: float | None
    last: bool

    @property
    def frames(self) -> int:
        """Environment frames of the whole run so far."""
        return self.progress.frames

    @property
    def returns(self) -> np.ndarray:
        """<float64>[k] returns of the new training episodes."""
        return np.array([row.episode_return for row in self.episodes if not row.evaluation])


class Run:
    """What callbacks may do with the run.

    Attributes:
      logdir: its directory, absolute.
      options: all its options by name.
      stopped: the reason given to the first `stop`; None before it.
    """

    def __init__(
        self, logdir: Path, options: Mapping[str, Any], save: Callable[[Path], Path | None]
    ):
        self.logdir = logdir
        self.options = options
        self.stopped: str | None = None
        self._save = save

    def stop(self, reason: str) -> None:
        """Ends the run as finished, with a checkpoint; the same command would continue it."""
        if self.stopped is None:
            self.stopped = reason
            logging.info("Training ends: %s.", reason)

    def save(self, directory: str | Path) -> Path | None:
        """Saves a checkpoint in `directory`, in place of the one there; `play` takes `directory`.

        In the run's own directory, it is one more of the run's.

        Returns:
          The checkpoint; None if it could not be written, which logs a warning.
        """
        return self._save(Path(directory))


class Callback:
    """Base class; override what you need.

    The learner calls the methods between training steps and waits for them: their seconds are the
    metric `speed/callbacks/NAME_s`. An exception ends the run: the learner saves a checkpoint,
    calls `on_end`, and raises it again. An exception in `on_start` ends the run before training:
    nothing is saved, and only callbacks whose `on_start` has returned get `on_end`.

    Attributes:
      run: set before `on_start`.
    """

    run: Run

    def on_start(self) -> None:
        """The run starts, or continues; nothing has been trained yet."""

    def on_report(self, report: Report) -> None:
        """There is a new point in TensorBoard."""

    def on_save(self, path: Path) -> None:
        """The run has saved its newest checkpoint to `path`."""

    def on_end(self, phase: str) -> None:
        """The run ends: `phase` is "done", "stopped" (continue it later) or "failed"."""


class StopAtReturn(Callback):
    """Ends the run once the agent is good enough (`--stop_at_return`)."""

    def __init__(self, enough: float):
        self._enough = enough

    def on_report(self, report: Report) -> None:
        if report.mean_return is not None and report.mean_return >= self._enough:
            self.run.stop(f"the mean return is {report.mean_return:.4g} (--stop_at_return)")


def check(callbacks: Sequence[Callback]) -> None:
    """Refuses other objects.

    Raises:
      TypeError: one of them is not a `Callback`.
    """
    for callback in callbacks:
        if not isinstance(callback, Callback):
            hint = f" Write {callback.__name__}()." if isinstance(callback, type) else ""
            raise TypeError(
                f"callbacks= must be objects of subclasses of Callback, not {callback!r}.{hint}"
            )


class Callbacks:
    """Calls the callbacks of a run; the first error ends it.

    Raises:
      TypeError: one of them is not a `Callback`.
    """

    def __init__(self, callbacks: Sequence[Callback], run: Run):
        check(callbacks)
        self._given, self._run = callbacks, run
        self._started: list[Callback] = []
        self._error: BaseException | None = None
        self._seconds: dict[str, float] = collections.defaultdict(float)

    @property
    def stopped(self) -> str | None:
        """Why one of them has ended the run, if any has."""
        return self._run.stopped

    @property
    def failed(self) -> bool:
        """Whether one of them has raised an exception."""
        return self._error is not None

    @contextlib.contextmanager
    def running(self, finished: Callable[[], bool]) -> Iterator[None]:
        """Calls `on_start` and `on_end` around the context, and raises what a callback has raised.

        Args:
          finished: whether the run ended without being stopped.
        """
        phase = "failed"
        try:
            for callback in self._given:
                callback.run = self._run
                callback.on_start()
                self._started.append(callback)
            yield
            if self._error is None:
                phase = "done" if finished() else "stopped"
        finally:
            self.call("on_end", phase)
        if self._error is not None:
            raise self._error

    def call(self, event: str, *arguments: Any) -> None:
        """Calls this method of every callback."""
        for callback in self._started:
            began = time.monotonic()
            try:
                getattr(callback, event)(*arguments)
            except BaseException as error:
                self._error = self._error or error
                self._run.stop(f"{type(callback).__name__}.{event} raised {error!r}")
            name = f"speed/callbacks/{type(callback).__name__}_s"
            self._seconds[name] += time.monotonic() - began

    def seconds(self) -> dict[str, float]:
        """Seconds spent in each class of callbacks since the last call, as metrics."""
        seconds = dict(self._seconds)
        self._seconds.clear()
        return seconds
