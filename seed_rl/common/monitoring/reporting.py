"""A running learner's reports: progress file, console line, TensorBoard, returns.csv."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from seed_rl.common.acting.environment_family import Tasks
from seed_rl.common.callbacks import Report
from seed_rl.common.inference.inference_store import InferenceStore
from seed_rl.common.monitoring.metrics import (
    MAIN,
    EpisodeStatistics,
    MeanMetrics,
    SummaryWriter,
)
from seed_rl.common.monitoring.skipped_steps import WARN_AFTER, SkippedSteps
from seed_rl.common.run_files.progress import SILENCE_S, ProgressWriter

_LONG_PAUSE_S = 10.0
_UNUSUAL = 3.0  # Times as long as training steps usually are apart.
_BEAT_S = 1.0
_LOG_PERIOD_S = 60.0
_PERIODS_OF_WAITING = 2.5  # Without a report for this long, the training loop must be waiting.
# Tags of the training steps' metrics by their names; others get the prefix train/.
_TAGS = {"loss": f"{MAIN}/loss", "skipped_steps": "train/skipped_fraction"}


class _Served:
    """A server's statistics of a function, over the time between two updates."""

    def __init__(self) -> None:
        self._last = dict.fromkeys(("calls", "rows", "batches", "queue_s", "run_s"), 0.0)

    def update(self, stats: Mapping[str, Any]) -> dict[str, float]:
        """Takes the means since the server started and returns those since the last update."""
        now = {name: float(stats[name]) for name in ("calls", "rows", "batches")}
        now["queue_s"] = stats["queue_wait_us"] * stats["calls"] * 1e-6
        now["run_s"] = stats["run_us"] * stats["batches"] * 1e-6
        new = {name: value - self._last[name] for name, value in now.items()}
        self._last = now
        batches, calls = max(new["batches"], 1.0), max(new["calls"], 1.0)
        return {
            "mean_batch": new["rows"] / batches,
            "queue_wait_us": 1e6 * new["queue_s"] / calls,
            "run_us": 1e6 * new["run_s"] / batches,
        }


class FailingCalls:
    """Detects that no call of the actors succeeds; why is otherwise only in their own logs.

    Args:
      clock: returns seconds; tests replace it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._succeeded, self._errors = clock(), 0  # Time of the last success; errors then.
        self._answered = 0
        self._logged = -math.inf
        self._error: str | None = None

    def update(self, stats: Mapping[str, Any]) -> None:
        """Takes the server's statistics of the inference function."""
        now = self._clock()
        if stats["answered"] > self._answered:
            self._answered, self._errors = stats["answered"], stats["errors"]
            self._succeeded, self._error = now, None
        elif stats["errors"] > self._errors and now - self._succeeded > SILENCE_S:
            self._error = stats["last_error"]
            if now - self._logged > _LOG_PERIOD_S:
                logging.warning("All calls from actors fail: %s", self._error)
                self._logged = now

    def warning(self) -> str | None:
        """A warning while there are only errors."""
        return None if self._error is None else f"all calls from actors fail: {self._error}"


class SilentEnvironments:
    """Detects environments whose actors stopped, hang or never connected.

    Args:
      silence: returns <float32>[num_envs], the seconds since each environment's last call, NaN
        before its first (`InferenceStore.silence`).
    """

    def __init__(self, silence: Callable[[], np.ndarray]):
        self._silence = silence
        self._began = time.monotonic()
        self._before: set[int] = set()
        self._warned: set[int] = set()

    def update(self) -> tuple[tuple[int, float], ...]:
        """Environments that never called, or are silent now and were at the last update.

        As in `Progress.silent_envs`. Checking twice gives environments time to call again after a
        stall of the learner.
        """
        seconds = self._silence()
        never = np.isnan(seconds)
        seconds = np.where(never, time.monotonic() - self._began, seconds)
        silent = set(np.flatnonzero(seconds > SILENCE_S).tolist())
        unheard = set(np.flatnonzero(never).tolist())
        reported, self._before = sorted(silent & self._before | unheard), silent
        self._warned &= silent
        # No warning for ids without an actor: `num_envs` may exceed the number that runs.
        lost = [i for i in reported if not never[i] and i not in self._warned]
        if lost:
            self._warned.update(lost)
            logging.warning(
                "No calls from environments %s for %.0f s: their actors stopped, or the "
                "environments hang.",
                _ranges(lost),
                max(seconds[i] for i in lost),
            )
        return tuple((i, round(float(seconds[i]), 1)) for i in reported)


def _ranges(ids: list[int]) -> str:
    """Sorted ids as text: "0 to 3, 7"."""
    cuts = [k for k in range(1, len(ids)) if ids[k] != ids[k - 1] + 1]
    parts = [ids[a:b] for a, b in zip([0, *cuts], [*cuts, len(ids)], strict=True)]
    return ", ".join(f"{p[0]} to {p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)


class Reporter:
    """Collects the state of a run and publishes it to each destination at its own interval."""

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        *,
        store: InferenceStore,
        num_training_envs: int,
        num_action_repeats: int,
        total_frames: int,
        start_frames: int,
        log_period_s: float,
        num_eval_envs: int = 0,
        record: Mapping[str, Any] | None = None,
        tasks: Tasks | None = None,
        devices: str = "",
        learners: int = 1,
        train_steps: int = 0,
    ):
        """Creates the outputs.

        Args:
          logdir: an existing directory.
          store: its episodes and counters are reported.
          num_training_envs: environments with this id or a higher one are for evaluation.
          num_action_repeats: environment frames per agent step.
          total_frames: environment frames at which the run ends.
          start_frames: environment frames from which it continues.
          log_period_s: seconds between points in TensorBoard and lines on the console.
          num_eval_envs: number of environments for evaluation.
          record: all options of the run, from `run_record.describe`, for TensorBoard.
          tasks: of the environments, reported separately, if there are several.
          devices: what infers and what trains, for the progress file.
          learners: how many train together.
          train_steps: training steps before it continues.
        """
        self._store = store
        self._evaluates = num_eval_envs > 0
        self._log_period_s = log_period_s
        self._logged = time.monotonic()
        self._lock = threading.Lock()  # Guards what `_watch` uses, too: see `_actors`.
        self._progress = ProgressWriter(logdir, total_frames, start_frames, devices=devices)
        self._warnings: dict[str, str] = {}
        self._silent = SilentEnvironments(store.silence)
        self._failing = FailingCalls()
        self._served: Callable[[], Mapping[str, Any]]
        self._episodes = EpisodeStatistics(
            num_training_envs,
            num_action_repeats,
            logdir,
            start_frames,
            finished=start_frames >= total_frames,
            tasks=tasks,
            learners=learners,
            num_eval_envs=num_eval_envs,
        )
        self._metrics = MeanMetrics()
        self._skipped = SkippedSteps(store.not_finite.warning)
        self._served_lately, self._served_since_log = _Served(), _Served()
        self._trained: float | None = None
        self._step_s = 0.0  # The usual time between training steps.
        self._train_steps = train_steps
        self._summaries = SummaryWriter(logdir)
        if record:
            self._summaries.describe(start_frames, record)

    def phase(self, name: str, frames: int, reason: str | None = None) -> None:
        """Reports a new phase, one of `progress.PHASES`, immediately; `reason` as in `Progress`."""
        with self._lock:
            self._progress.update(
                phase=name,
                frames=frames,
                train_steps=self._train_steps,
                episode_return_mean=self._episodes.recent_return,
                episodes=self._episodes.count,
                warning=self._warning(),
                reason=reason,
            )

    def warn(self, source: str, text: str | None) -> None:
        """Shows a warning from now on, replacing the last from this source; None removes it."""
        with self._lock:
            self._warnings.pop(source, None)
            if text is not None:
                self._warnings[source] = text

    def clip(self, frames: int, gif: bytes) -> None:
        """Shows an animated GIF of the agent after `frames` frames in TensorBoard."""
        self._summaries.clip(frames, gif)

    @contextlib.contextmanager
    def watching(self, served: Callable[[], Mapping[str, Any]]) -> Iterator[None]:
        """Updates the progress file within the context while the training loop waits.

        Args:
          served: returns the server's statistics of the inference function.
        """
        self._served = served
        end = threading.Event()
        thread = threading.Thread(target=self._watch, args=(end,), name="reporter", daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()

    def _watch(self, end: threading.Event) -> None:
        while not end.wait(_BEAT_S):
            with self._lock:
                if self._progress.due(_PERIODS_OF_WAITING):
                    self._progress.update(**self._actors(self._served()))

    def _actors(self, stats: Mapping[str, Any]) -> dict[str, Any]:
        """The part of the progress that concerns actors."""
        last = self._progress.last
        if last.phase in ("starting", "training"):  # At the end, calls are refused.
            self._failing.update(stats)
        batch = self._served_lately.update(stats)["mean_batch"]
        return dict(
            mean_inference_batch=batch or last.mean_inference_batch,  # 0: actors wait.
            warning=self._warning(),
            silent_envs=() if self._store.closed else self._silent.update(),
        )

    def _warning(self) -> str | None:
        warnings = list(self._warnings.values())
        if (skipped := self._skipped.in_a_row) >= WARN_AFTER:
            warnings.append(f"the last {skipped} training steps were skipped")
        sources = (self._store.not_finite, self._failing)
        warnings += [text for source in sources if (text := source.warning())]
        waited = 0.0 if self._trained is None else time.monotonic() - self._trained
        if self._is_long(waited, SILENCE_S) and self._progress.last.phase == "training":
            warnings.append(f"no training step for {waited:.0f} s")
        return "; ".join(warnings) or None

    def step(
        self,
        frames: int,
        train_steps: int,
        metrics: Mapping[str, Any],
        extra: Callable[[], Mapping[str, Any]],
        last: bool = False,
    ) -> Report | None:
        """Adds one training step and publishes the reports that are due.

        Args:
          frames: environment frames trained on so far.
          train_steps: training steps so far.
          metrics: scalars of this step.
          extra: returns further values for TensorBoard, by name, as for `SummaryWriter.write`.
          last: publishes everything even if it is not due, so that short runs are reported too.

        Returns:
          What was written for TensorBoard; None if no point was due.

        Raises:
          UserError: training has stalled because gradients are not finite.
        """
        self._train_steps = train_steps
        self._metrics.add(
            {_TAGS.get(name, f"train/{name}"): value for name, value in metrics.items()}
        )
        if metrics:
            self._skipped.add(metrics["skipped_steps"], metrics)
            self._warn_of_pauses(train_steps)
        if not (last or self._progress.due()):
            return None
        self._skipped.check()
        self._take_episodes()
        with self._lock:
            stats = self._served()  # Read here, because `_watch` might have read newer ones.
            progress = self._progress.update(
                phase="training",
                last=last,
                frames=frames,
                train_steps=train_steps,
                episode_return_mean=self._episodes.recent_return,
                episodes=self._episodes.count,
                **self._actors(stats),
            )
        now = time.monotonic()
        if not last and now - self._logged < self._log_period_s:
            return None
        self._logged = now
        inference = self._served_since_log.update(stats)
        counters = self._store.counters()
        episodes = self._episodes.new
        values = {
            **self._metrics.harvest(),
            **self._episodes.harvest(),
            f"{MAIN}/frames_per_s": progress.frames_per_s,
            "speed/mean_inference_batch": inference["mean_batch"],
            "speed/inference_queue_wait_us": inference["queue_wait_us"],
            "speed/inference_run_us": inference["run_us"],
            "speed/inference_waits_for_training": counters.blocked,
            "speed/unrolls_waiting": counters.queue_size,
            "system/environment_starts": counters.lives,
            "system/refused_batches": counters.refused,
            "train/steps": train_steps,
            **extra(),
        }
        arrays = {name: np.asarray(value, np.float64) for name, value in values.items()}
        self._summaries.write(frames, arrays)
        logging.info("%s", progress.line())
        numbers = {name: value if value.ndim else float(value) for name, value in arrays.items()}
        judged = self._episodes.judged_return(self._evaluates)
        return Report(progress, numbers, episodes, judged, last)

    def skipped_in_a_row(self) -> int:
        """How many training steps up to the last were skipped: their weights may be the cause.

        Raises:
          UserError: training has stalled because gradients are not finite.
        """
        return self._skipped.check()

    def _warn_of_pauses(self, train_steps: int) -> None:
        now = time.monotonic()
        then, self._trained = self._trained, now
        if then is None:
            return
        if self._is_long(now - then, _LONG_PAUSE_S):
            logging.warning(
                "%.0f s passed between training steps %d and %d. For the cause, see "
                "speed/callbacks/*, speed/inference_run_us, speed/inference_queue_wait_us and "
                "system/environment_starts in TensorBoard.",
                now - then,
                train_steps - 1,
                train_steps,
            )
        self._step_s += (now - then - self._step_s) / (5 if self._step_s else 1)

    def _is_long(self, seconds: float, limit_s: float) -> bool:
        """Whether a wait is beyond the limit and unusual: batches may take minutes to gather."""
        return seconds > max(limit_s, _UNUSUAL * self._step_s)

    def close(self) -> None:
        """Writes everything pending to disk."""
        self._take_episodes()
        self._episodes.close()
        self._summaries.close()

    def _take_episodes(self) -> None:
        self._episodes.add(self._store.episodes())
