"""What a learner tells while it runs: progress file, console line, TensorBoard, returns.csv."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from seed_rl.common.inference_store import InferenceStore
from seed_rl.common.metrics import EpisodeInfo, EpisodeStatistics, MeanMetrics, SummaryWriter
from seed_rl.common.progress import ProgressWriter


class Reporter:
    """Collects what happens in a run and publishes it, each in its own rhythm."""

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
    ):
        """Opens the files.

        Args:
          logdir: an existing directory.
          store: whose episodes and counters are told of.
          num_training_envs: environments from this id on are for evaluation.
          num_action_repeats: environment frames per agent step.
          total_frames: environment frames at which the run ends.
          start_frames: where it goes on.
          log_period_s: seconds between points in TensorBoard and lines on the console.
        """
        self._store = store
        self._num_action_repeats = num_action_repeats
        self._log_period_s = log_period_s
        self._logged = time.monotonic()
        self._progress = ProgressWriter(logdir, total_frames)
        self._progress.update(phase="starting", frames=start_frames)
        self._episodes = EpisodeStatistics(num_training_envs, logdir, start_frames)
        self._metrics = MeanMetrics()
        self._summaries = SummaryWriter(logdir)

    def phase(self, name: str, frames: int) -> None:
        """Tells of a new phase, one of `progress.PHASES`, at once."""
        self._progress.update(phase=name, frames=frames)

    def step(
        self,
        frames: int,
        train_steps: int,
        metrics: Mapping[str, Any],
        served: Callable[[], Mapping[str, Any]],
        extra: Callable[[], Mapping[str, Any]],
        last: bool = False,
    ) -> None:
        """Takes in one training step, and publishes what is due.

        Args:
          frames: environment frames trained on.
          train_steps: training steps so far.
          metrics: scalars of this step.
          served: gives the server's statistics of the inference function.
          extra: gives further values for TensorBoard, see `SummaryWriter.write`.
          last: publishes all, whether it is due or not: short runs are told of too.
        """
        self._metrics.add({f"train/{name}": value for name, value in metrics.items()})
        if not (last or self._progress.due()):
            return
        self._take_episodes(frames)
        inference = served()
        progress = self._progress.update(
            phase="training",
            frames=frames,
            train_steps=train_steps,
            episode_return_mean=self._episodes.recent_return,
            episodes=self._episodes.count,
            mean_inference_batch=inference["mean_batch"],
        )
        now = time.monotonic()
        if not last and now - self._logged < self._log_period_s:
            return
        self._logged = now
        counters = self._store.counters()
        self._summaries.write(
            frames,
            {
                **self._metrics.harvest(),
                **self._episodes.harvest(),
                "speed/frames_per_s": progress.frames_per_s,
                "speed/mean_inference_batch": inference["mean_batch"],
                "speed/inference_queue_wait_us": inference["queue_wait_us"],
                "speed/inference_run_us": inference["run_us"],
                "speed/inference_waits_for_training": counters.blocked,
                "speed/unrolls_waiting": counters.queue_size,
                "actors/lives": counters.lives,
                "actors/refused_batches": counters.refused,
                "train/steps": train_steps,
                **extra(),
            },
        )
        logging.info("%s", progress.line())

    def close(self, frames: int) -> None:
        """Writes what is not on disk yet."""
        self._take_episodes(frames)
        self._episodes.close()
        self._summaries.close()

    def _take_episodes(self, frames: int) -> None:
        episodes = self._store.episodes()
        self._episodes.add(
            EpisodeInfo(
                num_frames=episodes.num_steps * self._num_action_repeats,
                returns=episodes.returns,
                raw_returns=episodes.raw_returns,
                env_ids=episodes.env_ids,
            ),
            frames,
        )
