"""The learner's metrics: means of training metrics, episode statistics, TensorBoard.

The x-axis is environment frames.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import queue
import shutil
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorboard.plugins.image import metadata as image_metadata

from seed_rl.common.acting.environment_family import Tasks
from seed_rl.common.inference.inference_store import EpisodeStats
from seed_rl.common.monitoring import run_summary
from seed_rl.common.monitoring.task_statistics import TaskStatistics
from seed_rl.common.run_files.returns_log import EpisodeRow, ReturnsLog
from seed_rl.common.system import files
from seed_rl.common.types import LARGEST

MAIN = "charts"
"""Group of the most important curves; TensorBoard sorts groups alphabetically."""


class MeanMetrics:
    """Means of the training steps' scalars over a logging interval.

    `add` only stores the tensors, so that it is cheap and does not wait for the accelerator.
    """

    _MOST_HELD = 1000

    def __init__(self) -> None:
        self._held: dict[str, list[Any]] = collections.defaultdict(list)
        self._sums: dict[str, float] = collections.defaultdict(float)
        self._counts: dict[str, int] = collections.defaultdict(int)

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Adds the scalars (tensors, arrays or numbers) of one step, by name."""
        for name, value in metrics.items():
            held = self._held[name]
            held.append(value)
            if len(held) >= self._MOST_HELD:
                self._fold(name)

    def harvest(self) -> dict[str, float]:
        """Returns the means since the last harvest; empty if nothing was added."""
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
    """Writes scalars and histograms for TensorBoard in a background thread.

    A slow or full disk does not delay training: when the queue is full, values are dropped; errors
    are logged once.

    Args:
      logdir: directory of the event files.
    """

    def __init__(self, logdir: str | os.PathLike[str]):
        self._logdir = os.fspath(logdir)
        self._writer: Any = None  # Created by the first write, retried if the disk is full.
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue(maxsize=100)
        self._warned = False
        self._thread = threading.Thread(target=self._run, name="tensorboard", daemon=True)
        self._thread.start()

    def write(self, frames: int, values: Mapping[str, Any]) -> None:
        """Writes values by name at x = `frames`: numbers as scalars, arrays as histograms."""
        self._later(lambda: self._write(frames, values))

    def describe(self, frames: int, record: Mapping[str, Any]) -> None:
        """Writes all options of the run as text and as hyperparameters; see `run_summary`."""
        self._later(lambda: self._write_protos(frames, run_summary.summaries(record)))

    def clip(self, frames: int, gif: bytes) -> None:
        """Writes an animated GIF as an image, as which TensorBoard shows it moving."""
        self._later(lambda: self._write_clip(frames, gif))

    def close(self) -> None:
        """Writes everything queued and ends the thread."""
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

    def _write(self, frames: int, values: Mapping[str, Any]) -> None:
        with self._writing(frames):
            for name, value in values.items():
                write = tf.summary.histogram if np.ndim(value) else tf.summary.scalar
                write(name, value)

    def _write_clip(self, frames: int, gif: bytes) -> None:
        width, height = struct.unpack_from("<HH", gif, 6)
        with self._writing(frames):
            tf.summary.write(
                "clips/agent",
                tf.constant([str(width).encode(), str(height).encode(), gif]),
                metadata=image_metadata.create_summary_metadata("", ""),
            )

    def _write_protos(self, frames: int, protos: Sequence[bytes]) -> None:
        with self._writing(frames):
            for proto in protos:
                tf.summary.experimental.write_raw_pb(proto, step=frames)

    @contextlib.contextmanager
    def _writing(self, frames: int) -> Iterator[None]:
        if self._writer is None:
            os.makedirs(self._logdir, exist_ok=True)
            if shutil.disk_usage(self._logdir).free < _LEAST_ROOM:  # No file for each attempt.
                raise OSError(files.no_room(self._logdir))
            self._writer = tf.summary.create_file_writer(self._logdir)
        with self._writer.as_default(step=frames):
            yield
        self._writer.flush()

    def _guarded(self, action: Any) -> None:
        try:
            action()
        except (OSError, tf.errors.OpError) as error:
            self._writer = None  # TensorBoard reads nothing behind a half record: a new file.
            self._warn(str(error).split("\n", 1)[0])
        except Exception:  # A bug must not end the thread, which `close` waits for.
            logging.exception("A TensorBoard write failed. Training continues.")

    def _warn(self, reason: str) -> None:
        if not self._warned:
            logging.warning("Cannot write for TensorBoard (%s). Training continues.", reason)
        self._warned = True


_LEAST_ROOM = 1 << 20  # Bytes.

_JUDGED = {False: 100, True: 20}
"""Fewest episodes by which an agent is judged: of training, of evaluation."""


class _Recent:
    """Returns of the episodes that ended in the last 5 % of frames, but at least of the last 10.

    A fixed number of long episodes may reach back over a third of a run; their mean then lags far
    behind the agent.

    Args:
      most: maximum number of episodes.
    """

    _SHARE, _FEWEST = 0.05, 10

    def __init__(self, most: int):
        self._episodes = collections.deque[tuple[int, float]](maxlen=most)

    def add(self, frames: int, episode_return: float) -> None:
        """Adds an episode that ended after `frames` frames of the run, the newest."""
        episodes = self._episodes
        episodes.append((frames, episode_return))
        while len(episodes) > self._FEWEST and episodes[0][0] < (1 - self._SHARE) * frames:
            episodes.popleft()

    def mean(self) -> float:
        return float(np.mean([episode_return for _, episode_return in self._episodes]))


class _Judged:
    """The newest returns of each environment, equally many of each.

    The newest of all environments together would at first be those that ended first: the shortest,
    which may be the best ones or the worst.

    Args:
      envs: ids of the environments.
      fewest: number of episodes of all environments together.
    """

    _PATIENCE = 10  # Without an episode during so many times all of ours, an environment is gone.

    def __init__(self, envs: range, fewest: int):
        each = -(-fewest // max(1, len(envs)))
        self._last = {env: collections.deque[float](maxlen=each) for env in envs}
        self._ended = dict.fromkeys(envs, 0)  # The count at each one's last episode.
        self._count = 0
        self._patience = self._PATIENCE * each * len(envs)

    def add(self, env_id: int, episode_return: float) -> None:
        self._count += 1
        self._ended[env_id] = self._count
        self._last[env_id].append(episode_return)

    def mean(self) -> float | None:
        """None until each environment that is not gone has ended enough episodes."""
        oldest = self._count - self._patience
        used = [last for env, last in self._last.items() if self._ended[env] >= oldest]
        if not self._count or any(len(last) < (last.maxlen or 0) for last in used):
            return None
        return float(np.mean(used))


class EpisodeStatistics:
    """Statistics of finished episodes, separately for training and evaluation environments.

    Arguments are those of `Reporter`. Without `logdir` there is no `returns.csv`. `finished`: the
    run has already used all its frames. `window`: largest number of episodes in the recent means.
    With several `learners`, the frames of an episode's end count those of all, which are assumed to
    act equally fast.
    """

    def __init__(
        self,
        num_training_envs: int,
        num_action_repeats: int = 1,
        logdir: str | os.PathLike[str] | None = None,
        start_frames: int = 0,
        finished: bool = False,
        window: int = 100,
        tasks: Tasks | None = None,
        learners: int = 1,
        num_eval_envs: int = 0,
    ):
        self._num_training_envs = num_training_envs
        self._num_action_repeats = num_action_repeats
        self._start_frames = start_frames
        self._learners = learners
        kept = None if finished else start_frames
        self._log = ReturnsLog(logdir, kept) if logdir is not None else None
        self._new = {False: list[EpisodeRow](), True: list[EpisodeRow]()}
        self._recent = {flag: _Recent(window) for flag in (False, True)}
        envs = range(num_training_envs + num_eval_envs)
        parts = {False: envs[:num_training_envs], True: envs[num_training_envs:]}
        self._judged = {flag: _Judged(parts[flag], fewest) for flag, fewest in _JUDGED.items()}
        self._counts = {False: 0, True: 0}
        self._warned = False
        self._shaped = False  # Whether any episode's score has differed from its return.
        self._tasks = (
            {flag: TaskStatistics(tasks, flag, window) for flag in (False, True)} if tasks else None
        )

    @property
    def count(self) -> int:
        """Training episodes finished since the start of this learner."""
        return self._counts[False]

    @property
    def new(self) -> tuple[EpisodeRow, ...]:
        """Episodes since the last harvest, first those of training."""
        return (*self._new[False], *self._new[True])

    @property
    def recent_return(self) -> float | None:
        """Mean return of recent training episodes (`_Recent`); None before the first."""
        return self._recent[False].mean() if self.count else None

    def judged_return(self, evaluation: bool) -> float | None:
        """How good the agent is; None before enough episodes have ended since this learner began.

        Args:
          evaluation: whether to judge it by 20 evaluation episodes or more, instead of 100 training
            episodes or more.

        Returns:
          The mean return of the newest episodes of each environment, equally many of each.
        """
        return self._judged[evaluation].mean()

    def add(self, episodes: EpisodeStats) -> None:
        """Adds finished episodes, except those whose return or score is not finite.

        Args:
          episodes: arrays [k], from `InferenceStore.episodes`; k may be 0.
        """
        known = np.isfinite(episodes.returns) & np.isfinite(episodes.raw_returns)
        if not known.all():
            self._warn_of_left_out(episodes.env_ids[~known])
            episodes = EpisodeStats(*(array[known] for array in episodes))
        now = time.time()
        frames_per_step = self._num_action_repeats * self._learners
        rows = [
            EpisodeRow(
                frames=self._start_frames + int(ended_at) * frames_per_step,
                time=now,
                episode_return=float(episode_return),
                raw_return=float(raw_return),
                episode_frames=int(num_steps) * self._num_action_repeats,
                env_id=int(env_id),
                evaluation=bool(env_id >= self._num_training_envs),
                success=None if np.isnan(success) else float(success),
            )
            for env_id, num_steps, episode_return, raw_return, ended_at, success in zip(
                *episodes, strict=True
            )
        ]
        for row in rows:
            self._new[row.evaluation].append(row)
            self._recent[row.evaluation].add(row.frames, row.episode_return)
            self._judged[row.evaluation].add(row.env_id, row.episode_return)
            self._counts[row.evaluation] += 1
            self._shaped |= row.raw_return != row.episode_return
        if self._log is not None:
            self._log.add(rows)

    def _warn_of_left_out(self, env_ids: np.ndarray) -> None:
        if not self._warned:
            logging.warning(
                "An episode of environment %d has rewards or scores that are not finite, or beyond "
                "±%.0e. Such episodes do not count in returns and scores.",
                env_ids[0],
                LARGEST,
            )
        self._warned = True

    def harvest(self) -> dict[str, float]:
        """Returns scalars for TensorBoard: means over the episodes since the last harvest.

        Scores (unshaped returns) are included only if any has differed from its return, the rate of
        successes only if episodes report it.
        """
        scalars: dict[str, float] = {}
        for evaluation, prefix in ((False, "episodes"), (True, "evaluation")):
            rows, self._new[evaluation] = self._new[evaluation], []
            if not rows:
                continue
            # TensorBoard's HParams sorts by name: this one is first.
            name = "evaluation_return" if evaluation else "episode_return"
            scalars[f"{MAIN}/{name}"] = float(np.mean([r.episode_return for r in rows]))
            of = "evaluation_" if evaluation else ""
            if self._shaped:
                scalars[f"{MAIN}/{of}score"] = float(np.mean([r.raw_return for r in rows]))
            if known := [r.success for r in rows if r.success is not None]:
                scalars[f"{MAIN}/{of}success"] = float(np.mean(known))
            scalars[f"{prefix}/frames"] = float(np.mean([r.episode_frames for r in rows]))
            scalars[f"{prefix}/recent_return"] = self._recent[evaluation].mean()
            scalars[f"{prefix}/count"] = float(self._counts[evaluation])
            if self._tasks is not None:
                scalars |= self._tasks[evaluation].harvest(rows)
        return scalars

    def close(self) -> None:
        """Writes pending rows to disk."""
        if self._log is not None:
            self._log.flush()
