"""Moves unrolls from inference into the replay, and from the replay to training.

    store --[ReplayWriter]--> replay --[batches]--> training --[PriorityWriter]--> replay

Each arrow is a separate thread, which waits when the next one is behind.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from seed_rl.common.errors import UserError
from seed_rl.common.inference import finite_unrolls
from seed_rl.common.inference.inference_store import InferenceStore
from seed_rl.common.nest import Nest
from seed_rl.common.replay import (
    Hindsight,
    PrioritizedReplay,
    ReplayClosed,
)
from seed_rl.common.replay.hindsight import map_steps
from seed_rl.common.types import Unroll

MOST_AT_ONCE = 16
"""Most unrolls that enter the replay at once."""

_PENDING_UPDATES = 8
_RECENT = 100
_SAMPLED_AHEAD = 2  # Batches age while they wait.

DIVERGED = (
    "Training diverged: the network or its TD errors are no longer finite. Restart from an older "
    "checkpoint (--init_checkpoint) with a lower --learning_rate or --clip_norm."
)

Prepare = Callable[[Unroll], tuple[Unroll, tf.Tensor]]
"""Unrolls from inference -> (what the replay keeps of them, priorities <float32>[batch]). Unrolls
whose priority is not finite are left out."""


class SampledUnrolls(NamedTuple):
    """A training batch.

    Attributes:
      unrolls: `Unroll`, time-major, with what the algorithm keeps of each step.
      indices: <int64>[batch], keys of the unrolls in the replay.
      importance_weights: <float32>[batch], not normalized, on the same scale for all replicas.
    """

    unrolls: Unroll
    indices: Any
    importance_weights: Any


class ReplayWriter:
    """Moves complete unrolls from the store into the replay until either is closed.

    It blocks while the rate limiter admits nothing; then the store fills up and inference blocks.

    Attributes:
      inserted: unrolls moved, counted from `start`.
      error: the exception that ended the thread; None if the store or the replay was closed.
    """

    def __init__(
        self,
        store: InferenceStore,
        replay: PrioritizedReplay,
        prepare: Prepare,
        check_network: Callable[[], None],
        start: int,
    ):
        """Starts the thread. It closes the replay on exit, so that nothing waits for it forever.

        Args:
          store: the source of unrolls.
          replay: their destination.
          prepare: computes what to insert.
          check_network: called when some unrolls are not finite; raises if the weights are not
            finite either.
          start: first value of `inserted`.
        """
        self._store = store
        self._replay = replay
        self._prepare = prepare
        self._check_network = check_network
        self.inserted = start
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="replay-writer", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Waits for the thread to end; close the store or the replay first."""
        self._thread.join()

    def _run(self) -> None:
        try:
            with tf.device("/cpu:0"):  # On an accelerator it would queue behind training steps.
                while True:
                    self._move()
        except (tf.errors.OutOfRangeError, ReplayClosed):
            pass
        except UserError as error:
            self.error = error
        except BaseException as error:
            logging.exception("Cannot insert unrolls into the replay.")
            self.error = error
        finally:
            self._replay.close()

    def _move(self) -> None:
        self._replay.limiter.await_insert()  # Before taking unrolls: more may join them meanwhile.
        waiting = self._store.counters().queue_size
        stored = self._store.dequeue(min(max(waiting, 1), MOST_AT_ONCE))
        prepared = self._prepare(Unroll(stored.agent_state, *stored.steps))
        unrolls, priorities = tf.nest.map_structure(lambda t: t.numpy(), prepared)
        good = np.isfinite(priorities)
        if not good.all():
            self._check_network()
            self._store.not_finite.note(stored.env_ids.numpy()[~good])
            unrolls, priorities = _chosen(unrolls, good), priorities[good]
        if len(priorities):
            self._replay.insert(unrolls, priorities)
        self.inserted += len(priorities)


class PriorityWriter:
    """Writes new priorities back to the replay while training continues."""

    def __init__(self, replay: PrioritizedReplay):
        self._replay = replay
        self._executor = futures.ThreadPoolExecutor(1, "priority-writer")
        self._pending: deque[futures.Future[None]] = deque()
        self._recent: deque[np.ndarray] = deque(maxlen=_RECENT)

    def put(self, indices: Any, priorities: Any) -> None:
        """Queues tensors [batch], which the accelerator may still be computing.

        Raises:
          UserError: earlier priorities were not finite.
        """
        pending = self._pending
        while pending and (pending[0].done() or len(pending) == _PENDING_UPDATES):
            pending.popleft().result()
        pending.append(self._executor.submit(self._write, indices, priorities))

    def recent(self) -> np.ndarray:
        """Priorities of the latest training steps, <float32>[n]."""
        recent = list(self._recent)
        return np.concatenate(recent) if recent else np.zeros([0], np.float32)

    def flush(self) -> None:
        """Waits until everything put so far is written.

        Raises:
          UserError: priorities were not finite.
        """
        while self._pending:
            self._pending.popleft().result()

    def close(self) -> None:
        """Writes pending updates and stops the thread."""
        self._executor.shutdown()

    def _write(self, indices: Any, priorities: Any) -> None:
        priorities = np.asarray(priorities)
        if not np.all(np.isfinite(priorities)):
            raise UserError(DIVERGED)
        self._replay.update_priorities(np.asarray(indices), priorities)
        self._recent.append(priorities)


class BatchSource:
    """Training batches from the replay as a `tf.data.Dataset`.

    Attributes:
      mean_age: mean number of unrolls inserted after each one in recent batches.
    """

    def __init__(self, replay: PrioritizedReplay, batch_size: int, hindsight: Hindsight | None):
        """Prepares the dataset; sampling starts when its first batch is requested.

        Args:
          replay: of `Unroll`s.
          batch_size: unrolls in a batch.
          hindsight: applied to each batch; used by this object alone. None: nothing is applied.
        """
        self._replay = replay
        self._batch_size = batch_size
        self._hindsight = hindsight
        self._ages: deque[float] = deque(maxlen=_RECENT)

    @property
    def mean_age(self) -> float:
        ages = list(self._ages)
        return float(np.mean(ages)) if ages else 0.0

    def dataset(self, encode: Callable[[Nest], Nest]) -> tf.data.Dataset:
        """Batches `encode(SampledUnrolls)` until the replay is closed."""
        size, specs = self._batch_size, self._replay.layout.specs
        specs = self._hindsight.part_specs(specs) if self._hindsight else specs
        signature = [
            tf.TensorSpec(field.batch_shape(size), field.dtype) for field in tf.nest.flatten(specs)
        ]
        signature += [tf.TensorSpec([size], tf.int64), tf.TensorSpec([size], tf.float32)]

        def packed(*tensors: tf.Tensor) -> Nest:
            unrolls = tf.nest.pack_sequence_as(specs, tensors[:-2])
            return encode(SampledUnrolls(unrolls, *tensors[-2:]))

        sampled = tf.data.Dataset.from_generator(self._batches, output_signature=tuple(signature))
        # Private threads: sampling may wait for unrolls, whose inference needs one of TensorFlow's
        # shared threads, of which there may be only one.
        options = tf.data.Options()
        options.threading.private_threadpool_size = 2
        return sampled.map(packed).prefetch(_SAMPLED_AHEAD).with_options(options)

    def _batches(self) -> Iterator[tuple[np.ndarray, ...]]:
        """The fields of one batch after another, until the replay is closed."""
        for sample in self._replay.batches(self._batch_size):
            self._ages.append(float(np.mean(sample.ages)))
            unrolls = self._hindsight(sample.unrolls) if self._hindsight else sample.unrolls
            yield *tf.nest.flatten(unrolls), sample.keys, sample.importance_weights


class ReplayMixer:
    """Adds replayed unrolls to batches of new ones, which enter the replay at the same time.

    The mixture is the same in every batch, so nothing waits for a ratio (LASER, Schmitt et al.
    2019, arXiv 1909.11583).
    """

    def __init__(self, replay: PrioritizedReplay, ratio: int):
        """Takes a replay of `Unroll`s in which neither inserts nor samples wait.

        Args:
          replay: where new unrolls go and others come from.
          ratio: replayed unrolls for each new one.
        """
        self.replay = replay
        self._ratio = ratio

    def dataset(
        self,
        new: Callable[[Callable[[Nest], Nest]], tf.data.Dataset],
        encode: Callable[[Nest], Nest],
    ) -> tf.data.Dataset:
        """Batches `encode(Unroll)`: new ones, then `ratio` times as many from the replay.

        Args:
          new: `new(encode)` is a dataset of new unrolls, see `Algorithm.dataset`.
          encode: applied to each mixed batch.
        """
        specs = self.replay.layout.specs
        # The batch is the second dimension, after time; in recurrent states, the first.
        num_states = len(tf.nest.flatten(specs.agent_state))

        def mix(*tensors: tf.Tensor) -> Nest:
            replayed = tf.numpy_function(self._exchange, tensors, [t.dtype for t in tensors])
            mixed = []
            for i, (fresh, old) in enumerate(zip(tensors, replayed, strict=True)):
                axis = 0 if i < num_states else 1
                shape = fresh.shape.as_list()
                shape[axis] *= self._ratio
                mixed.append(tf.concat([fresh, tf.ensure_shape(old, shape)], axis))
            return encode(tf.nest.pack_sequence_as(specs, mixed))

        # Flat in between, because tf.data turns lists into tensors.
        return new(lambda unrolls: tuple(tf.nest.flatten(unrolls))).map(mix).prefetch(1)

    def _exchange(self, *fields: np.ndarray) -> Sequence[np.ndarray]:
        """Inserts the new unrolls that can be learned from; returns the fields of replayed ones.

        `finite_unrolls.leave_out` replaces an unroll that is not finite by one that is abandoned
        throughout; if the whole batch is not finite, it replaces nothing. Neither kind is stored.
        """
        new = tf.nest.pack_sequence_as(self.replay.layout.specs, fields)
        with tf.device("/cpu:0"):  # On an accelerator it would queue behind training steps.
            finite = finite_unrolls.finite(new.agent_state, new.env_outputs).numpy()
        good = finite & ~new.env_outputs.abandoned[1:].all(axis=0)
        if good.any():
            self.replay.insert(_chosen(new, good))
        if not len(self.replay):  # Nothing to replay yet; the learner skips such a batch.
            return tf.nest.flatten(_chosen(new, np.tile(np.arange(len(good)), self._ratio)))
        return tf.nest.flatten(self.replay.sample(self._ratio * len(good)).unrolls)


def _chosen(unrolls: Unroll, rows: np.ndarray) -> Unroll:
    """The time-major unrolls of a batch at `rows`: a mask <bool>[batch] or indices <int>[n]."""
    state = tf.nest.map_structure(lambda array: array[rows], unrolls.agent_state)
    return map_steps(lambda array: array[:, rows], unrolls)._replace(agent_state=state)
