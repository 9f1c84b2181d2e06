"""A learner that trains together with others: one of several in a run.

Each serves its own actors, and its share of each batch comes from them; gradients are averaged over
all. Before each training step the learners exchange what they have and want, so that either all of
them take the step, or none does:

    learner 0: has a batch                         ┐
    learner 1: has a batch, SIGTERM has come       ├ all see the same rows: they save and end
    learner 2: waits for its actors                ┘

A learner with slow actors takes part in the exchange every second, so the others know what they are
waiting for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent import futures
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from seed_rl.common.errors import UserError
from seed_rl.common.learner import variables
from seed_rl.common.learner.learner import Learner
from seed_rl.common.learner.several_learners import Exchange, others_alive
from seed_rl.common.learner.training import BATCHES_END
from seed_rl.common.run_files import checkpoint_list
from seed_rl.common.run_files.progress import SILENCE_S

if TYPE_CHECKING:
    from seed_rl.common.learner.job import TrainingJob

_TICK_S = 1.0


class CollectiveLearner(Learner):
    """Learner `job.learner_index` of `job.learners`; `TrainingJob.part` is its share.

    The first one saves the checkpoints, to which the others add their replays.
    """

    def __init__(self, job: TrainingJob):
        self._index = job.learner_index
        self._exchange = Exchange(job.devices.training_strategy, self._index, job.learners)
        self._unrolls = 0  # Sum over all learners, since the start.
        self._ends = self._finishes = self._saves = False
        self._serial = 0  # Of the checkpoint that the first learner has just saved; 0: none.
        self._waiting_since = time.monotonic()
        self._pool = futures.ThreadPoolExecutor(1, "batches")
        self._batch: futures.Future[Any] | None = None
        with others_alive():  # The others take the first learner's variables.
            super().__init__(job)
        for variable in variables.variables(self._algorithm.network):
            if variable.synchronization == tf.VariableSynchronization.ON_READ:
                raise UserError(
                    f"The network's {variable.name} is synchronized ON_READ, which cannot be saved "
                    "with several learners. Sum over the replicas as you assign it."
                )
        frames = self._exchange([self._start_frames, self.train_steps])
        if (frames != frames[0]).any():
            raise UserError(
                "The learners have restored different checkpoints, after "
                f"{', '.join(f'{row[0]:,}' for row in frames)} frames: --logdir must be one "
                "directory that all of them see."
            )

    @property
    def frames(self) -> int:
        """Frames of all learners, as of the last exchange."""
        unroll_frames = self._config.unroll_length * self._run.num_action_repeats
        return self._start_frames + self._unrolls * unroll_frames

    @property
    def finished(self) -> bool:
        return self._finishes or self.frames >= self._config.total_environment_frames

    @property
    def done(self) -> bool:
        return self.finished or self._ends

    def _train_step(self, batches: Iterator[Any]) -> dict[str, tf.Tensor] | None:
        with others_alive():
            return super()._train_step(batches)

    def _next(self, batches: Iterator[Any]) -> Any:
        while True:
            self._batch = self._batch or self._pool.submit(next, batches)
            try:
                self._batch.result(_TICK_S)
                ready = True
            except futures.TimeoutError:
                ready = False
            except BATCHES_END:
                ready = False
                if not self._stop.requested:
                    raise
            waits_for = self._agree(ready)
            if self.done:
                raise tf.errors.OutOfRangeError(None, None, "The learners end.")
            if not waits_for:
                break
            self._report({})
        batch, self._batch = self._batch.result(), None
        return batch

    def _agree(self, ready: bool = False) -> list[int]:
        """Exchanges what the learners have and want; returns those without a batch."""
        due = time.monotonic() - self._last_save >= self._config.save_checkpoint_secs
        used = self._algorithm.unrolls_consumed - self._start_unrolls
        wants = self._stop.requested, self._callbacks.stopped is not None, due
        filled = self._algorithm.ready()
        rows = self._exchange([ready, used, *wants, filled, self._serial])
        self._unrolls = int(rows[:, 1].sum())
        self._ends, self._finishes, self._saves = (bool(any(rows[:, i])) for i in (2, 3, 4))
        self._serial = int(rows[0, 6])
        waits_for = [i for i, row in enumerate(rows) if not row[0]]
        now = time.monotonic()
        if not waits_for:
            self._waiting_since = now
        late = waits_for and now - self._waiting_since > SILENCE_S
        self._reporter.warn("learners", _late(waits_for, rows[:, 5]) if late else None)
        return waits_for

    def _await_experience(self) -> None:
        """Does nothing: `_next` reports while it waits."""

    def _save_if_due(self) -> None:
        # All learners skip the same steps.
        if self._saves and not self._reporter.skipped_in_a_row():
            self.save()
            self._last_save = time.monotonic()

    def save(self) -> Path | None:
        self._serial = 0
        self._agree()  # To get the current frames.
        frames, path = self.frames, None
        if self._index == 0:
            path = super().save()
            match = checkpoint_list.NAME.fullmatch(path.name) if path else None
            self._serial = int(match[1]) if match else 0
        else:
            self._reporter.phase("saving", frames)
            self._prepare_to_save()
        self._agree()
        if self._index:
            if self._serial:
                self._checkpoints.add_extra(checkpoint_list.name(self._serial, frames))
            if not self._inference.store.closed:
                self._reporter.phase("training", frames)
        self._agree()  # No learner ends before all have saved.
        return path


def _late(waits_for: Sequence[int], filled: np.ndarray) -> str:
    """What the others are waiting for; `filled` <bool>[learners]: whether each replay is filled."""
    filling = [i for i in waits_for if not filled[i]]
    names = ", ".join(map(str, filling or waits_for))
    if filling:
        return f"waiting for actors to fill the replay of learner {names}"
    return f"waiting for the actors of learner {names}"
