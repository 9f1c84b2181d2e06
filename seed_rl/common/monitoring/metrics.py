"""What the learner tells about itself: means of training metrics, episodes, TensorBoard.

All axes are environment frames.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from seed_rl.common.monitoring import run_summary
from seed_rl.common.run_files.returns_log import EpisodeRow, ReturnsLog

MAIN = "charts"
"""Group of the few curves to look at first; TensorBoard shows groups in alphabetical order."""

Arrays = Mapping[str, np.ndarray]


class EpisodeInfo(NamedTuple):
    """Finished episodes, as central inference counted them.

    Attributes:
      num_frames: <int64>[k] length in environment frames.
      returns: <float32>[k] sum of the rewards.
      raw_returns: <float32>[k] sum of the unshaped rewards (the game's score).
      env_ids: <int32>[k].
    """

    num_frames: Any
    returns: Any
    raw_returns: Any
    env_ids: Any


class MeanMetrics:
    """Means of the scalars that training steps return, over a logging interval.

    `add` only keeps the tensors, so that it neither costs time nor waits for the accelerator.
    """

    _MOST_HELD = 1000

    def __init__(self) -> None:
        self._held: dict[str, list[Any]] = collections.defaultdict(list)
        self._sums: dict[str, float] = collections.defaultdict(float)
        self._counts: dict[str, int] = collections.defaultdict(int)

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Takes in scalars (tensors, arrays, numbers) of one step by name."""
        for name, value in metrics.items():
            held = self._held[name]
            held.append(value)
            if len(held) >= self._MOST_HELD:
                self._fold(name)

    def harvest(self) -> dict[str, float]:
        """The means since the last harvest; empty if nothing was added."""
        for name in list(self._held):
            self._fold(name)
        means = {name: self._sums[name] / count for name, count in self._counts.items()}
        self._sums.clear()
        self._counts.clear()
        return means

    def _fold(self, name: str) -> None:
        held = self._held.pop(name)
        self._sums[name] += float(np.sum([float(value) for value in held]))
        self._counts[name] += len(held)


class SummaryWriter:
    """Writes scalars and histograms for TensorBoard from a thread of its own.

    Neither a slow nor a full disk holds up the training: what finds no place in the queue is
    dropped, and errors are warned of once.

    Args:
      logdir: where the event files go.
    """

    def __init__(self, logdir: str | os.PathLike[str]):
        self._logdir = os.fspath(logdir)
        self._writer: Any = None  # Made by the first write for which there is room.
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue(maxsize=100)
        self._warned = False
        self._thread = threading.Thread(target=self._run, name="tensorboard", daemon=True)
        self._thread.start()

    def write(self, frames: int, values: Mapping[str, Any]) -> None:
        """Writes values by name at `frames` on the axis: scalars, and of arrays their histogram."""
        arrays = {name: np.asarray(value, np.float64) for name, value in values.items()}
        self._later(lambda: self._write(frames, arrays))

    def describe(self, frames: int, record: Mapping[str, Any]) -> None:
        """Writes all options of the run as text and as hyperparameters; see `run_summary`."""
        self._later(lambda: self._write_protos(frames, run_summary.summaries(record)))

    def close(self) -> None:
        """Writes what is queued and ends the thread."""
        self._queue.put(None)
        self._thread.join()

    def _later(self, action: Callable[[], None]) -> None:
        try:
            self._queue.put_nowait(action)
        except queue.Full:
            self._warn("the disk is too slow")

    def _run(self) -> None:
        while (action := self._queue.get()) is not None:
            self._guarded(action)
        if self._writer is not None:
            self._guarded(self._writer.close)

    def _write(self, frames: int, arrays: Arrays) -> None:
        with self._writing(frames):
            for name, value in arrays.items():
                write = tf.summary.histogram if value.ndim else tf.summary.scalar
                write(name, value)

    def _write_protos(self, frames: int, protos: Sequence[bytes]) -> None:
        with self._writing(frames):
            for proto in protos:
                tf.summary.experimental.write_raw_pb(proto, step=frames)

    @contextlib.contextmanager
    def _writing(self, frames: int) -> Iterator[None]:
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self._logdir)
        with self._writer.as_default(step=frames):
            yield
        self._writer.flush()

    def _guarded(self, action: Any) -> None:
        try:
            action()
        except (OSError, tf.errors.OpError) as error:
            self._warn(str(error).split("\n", 1)[0])
        except Exception:  # A defect of ours must not end the thread: `close` waits for it.
            logging.exception("Something could not be written for TensorBoard. Training continues.")

    def _warn(self, reason: str) -> None:
        if not self._warned:
            logging.warning("Cannot write for TensorBoard (%s). Training continues.", reason)
        self._warned = True


class EpisodeStatistics:
    """Returns of finished episodes, training and evaluation environments apart.

    Args:
      num_training_envs: environments from this id on are for evaluation.
      logdir: where `returns.csv` goes; None writes none.
      start_frames: environment frames at which the run goes on.
      window: how many of the last episodes the recent means are over.
    """

    def __init__(
        self,
        num_training_envs: int,
        logdir: str | os.PathLike[str] | None = None,
        start_frames: int = 0,
        window: int = 100,
    ):
        self._num_training_envs = num_training_envs
        self._log = ReturnsLog(logdir, start_frames) if logdir is not None else None
        self._new = {False: list[EpisodeRow](), True: list[EpisodeRow]()}
        self._recent = {flag: collections.deque[float](maxlen=window) for flag in (False, True)}
        self._counts = {False: 0, True: 0}
        self._shaped = False  # Whether any score has differed from its return.

    @property
    def count(self) -> int:
        """Training episodes finished since the start of this learner."""
        return self._counts[False]

    @property
    def recent_return(self) -> float | None:
        """Mean return of the last training episodes; None before the first."""
        return self._mean(False)

    @property
    def recent_evaluation_return(self) -> float | None:
        """Mean return of the last evaluation episodes; None before the first."""
        return self._mean(True)

    def add(self, episodes: EpisodeInfo, frames: int) -> None:
        """Takes in episodes that ended.

        Args:
          episodes: arrays or tensors [k]; k may be 0.
          frames: environment frames of the whole run by now.
        """
        now = time.time()
        columns = [np.atleast_1d(np.asarray(column)).tolist() for column in episodes]
        rows = [
            EpisodeRow(
                frames=int(frames),
                time=now,
                episode_return=float(episode_return),
                raw_return=float(raw_return),
                episode_frames=int(num_frames),
                env_id=int(env_id),
                evaluation=env_id >= self._num_training_envs,
            )
            for num_frames, episode_return, raw_return, env_id in zip(*columns, strict=True)
        ]
        for row in rows:
            self._new[row.evaluation].append(row)
            self._recent[row.evaluation].append(row.episode_return)
            self._counts[row.evaluation] += 1
            self._shaped |= row.raw_return != row.episode_return
        if self._log is not None:
            self._log.add(rows)

    def harvest(self) -> dict[str, float]:
        """Scalars for TensorBoard: means over the episodes since the last harvest.

        Scores (unshaped returns) are among them only if the environment gives any that differ.
        """
        scalars: dict[str, float] = {}
        for evaluation, prefix in ((False, "episodes"), (True, "evaluation")):
            rows, self._new[evaluation] = self._new[evaluation], []
            if not rows:
                continue
            of = "evaluation_" if evaluation else ""
            scalars[f"{MAIN}/{of}return"] = float(np.mean([r.episode_return for r in rows]))
            if self._shaped:
                scalars[f"{MAIN}/{of}score"] = float(np.mean([r.raw_return for r in rows]))
            scalars[f"{prefix}/frames"] = float(np.mean([r.episode_frames for r in rows]))
            scalars[f"{prefix}/recent_return"] = float(np.mean(self._recent[evaluation]))
            scalars[f"{prefix}/count"] = float(self._counts[evaluation])
        return scalars

    def close(self) -> None:
        """Writes what is not on disk yet."""
        if self._log is not None:
            self._log.flush()

    def _mean(self, evaluation: bool) -> float | None:
        recent = self._recent[evaluation]
        return float(np.mean(recent)) if recent else None
