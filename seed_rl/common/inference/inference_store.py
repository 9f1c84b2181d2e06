"""The per-environment state of central inference, and the unrolls it fills.

A thin layer over the native store (`common/native/unrolls/inference_store.h`), which replaces
dozens of scatters and gathers per batch with two ops.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from seed_rl.common.inference.finite_unrolls import NonFiniteUnrolls
from seed_rl.common.native import op_library
from seed_rl.common.nest import Nest
from seed_rl.common.types import EnvOutput, StoredUnrolls


class EpisodeStats(NamedTuple):
    """Episodes that ended since the last call of `InferenceStore.episodes`, as NumPy arrays.

    An episode lasts from one reset of its environment to the next. It continues where only the
    learner's episode ends (`done` with an `episode_step` above 0).

    Attributes:
      env_ids: <int32>[episodes].
      num_steps: <int64>[episodes], agent steps.
      returns: <float32>[episodes], sum of the rewards; NaN if one was not finite, or beyond
        `types.LARGEST`.
      raw_returns: <float32>[episodes], sum of the unshaped rewards; NaN likewise.
      ended_at: <int64>[episodes], rows that all training environments had added to unrolls (steps,
        and resets after truncations) when the episode ended, since the store was created; never
        decreases.
      successes: <float32>[episodes], whether they reached their goal; NaN: not known.
    """

    env_ids: np.ndarray
    num_steps: np.ndarray
    returns: np.ndarray
    raw_returns: np.ndarray
    ended_at: np.ndarray
    successes: np.ndarray


class Counters(NamedTuple):
    """Totals since the store was created.

    Attributes:
      queue_size: complete unrolls that wait now.
      steps: agent steps.
      unrolls: unrolls completed.
      lives: lives of environments begun.
      refused: batches refused because of wrong ids or replaced lives.
      dropped: steps dropped because their life was replaced.
      blocked: number of times that inference waited for room in the queue.
    """

    queue_size: int
    steps: int
    unrolls: int
    lives: int
    refused: int
    dropped: int
    blocked: int


@functools.cache
def _ops() -> Any:
    return op_library.load_ops("libseed_unroll_ops")


def _dtypes(specs: Sequence[tf.TensorSpec]) -> list[tf.DType]:
    return [spec.dtype for spec in specs]


def _shapes(specs: Sequence[tf.TensorSpec]) -> list[tf.TensorShape]:
    return [spec.shape for spec in specs]


class InferenceStore:
    """Per-environment tables and unrolls of central inference.

    Usage, inside one `tf.function`:

        prev_actions, agent_state = store.begin(
            env_ids, run_ids, env_outputs, raw_rewards, successes
        )
        ... run the network ...
        store.end(env_ids, run_ids, actions, new_agent_state, step)

    and in another, which waits until `batch_size` unrolls are complete:

        unrolls = store.dequeue(batch_size)

    Attributes:
      num_envs: number of environments.
      num_steps_per_unroll: overlap + unroll_length + 1.
      closed: whether `close` was called.
      not_finite: log of the unrolls that are not `finite`, written by the callers of `dequeue`.
    """

    def __init__(
        self,
        *,
        num_envs: int,
        num_training_envs: int,
        unroll_length: int,
        num_overlapping_steps: int,
        queue_capacity: int,
        action_specs: Nest,
        initial_state: Nest,
        step_specs: Nest,
        unrolls_per_step: int = 0,
    ):
        """Creates an empty store.

        Args:
          num_envs: number of environments; their ids are `[0, num_envs)`.
          num_training_envs: environments from this id on (evaluation) fill no unrolls.
          unroll_length: steps per unroll, without the overlap and the bootstrap step.
          num_overlapping_steps: steps (burn-in) shared by consecutive unrolls.
          queue_capacity: complete unrolls that may wait; beyond that, inference waits.
          action_specs: nest of `tf.TensorSpec` of an action, without a batch dimension.
          initial_state: nest of [1, ...], the recurrent state at the start of a life.
          step_specs: nest of `tf.TensorSpec` of a recorded step, without a batch dimension.
          unrolls_per_step: if above 0, inference and training take turns: `begin` waits from the
            moment that many unrolls are complete until `trained`. Each `count` of `dequeue` must
            divide it. 0: `begin` never waits.

        Raises:
          tf.errors.InvalidArgumentError: a size is out of range or a dtype cannot be stored.
        """
        self.num_envs = num_envs
        self.closed = False
        self._takes_turns = unrolls_per_step > 0
        self.not_finite = NonFiniteUnrolls()
        self.num_steps_per_unroll = num_overlapping_steps + unroll_length + 1
        self._action_specs = action_specs
        self._step_specs = step_specs
        self._state_specs = tf.nest.map_structure(
            lambda t: tf.TensorSpec(t.shape[1:], t.dtype), initial_state
        )
        actions, states, steps = (
            tf.nest.flatten(specs) for specs in (action_specs, self._state_specs, step_specs)
        )
        with tf.device("/cpu:0"):
            self._handle = _ops().seed_inference_store(
                [t[0] for t in tf.nest.flatten(initial_state)],
                num_envs=num_envs,
                num_training_envs=num_training_envs,
                unroll_length=unroll_length,
                num_overlapping_steps=num_overlapping_steps,
                queue_capacity=queue_capacity,
                unrolls_per_step=unrolls_per_step,
                action_dtypes=_dtypes(actions),
                action_shapes=_shapes(actions),
                state_shapes=_shapes(states),
                step_dtypes=_dtypes(steps),
                step_shapes=_shapes(steps),
            )

    def begin(
        self,
        env_ids: tf.Tensor,
        run_ids: tf.Tensor,
        env_outputs: EnvOutput,
        raw_rewards: tf.Tensor,
        successes: tf.Tensor | None = None,
    ) -> tuple[Nest, Nest]:
        """Admits a batch of steps; waits while it is training's turn (`unrolls_per_step`).

        Args:
          env_ids: <int32>[batch], all different.
          run_ids: <int64>[batch]; a new run id starts a new life of its environment.
          env_outputs: nest of [batch, ...].
          raw_rewards: <float32>[batch].
          successes: <float32>[batch], see `BatchStep`; None: not known.

        Returns:
          (previous actions, recurrent state), nests of [batch, ...].

        Raises:
          tf.errors.InvalidArgumentError: an id is out of range or occurs twice.
          tf.errors.FailedPreconditionError: a newer actor has taken over an environment.
          tf.errors.OutOfRangeError: training is done.
        """
        with tf.device("/cpu:0"):
            actions, state = _ops().seed_inference_begin(
                self._handle,
                env_ids,
                run_ids,
                env_outputs.reward,
                env_outputs.done,
                env_outputs.abandoned,
                env_outputs.episode_step,
                raw_rewards,
                tf.fill(tf.shape(env_ids), math.nan) if successes is None else successes,
                action_dtypes=_dtypes(tf.nest.flatten(self._action_specs)),
                state_dtypes=_dtypes(tf.nest.flatten(self._state_specs)),
            )
        batch = env_ids.shape[:1]
        return self._pack(self._action_specs, actions, batch), self._pack(
            self._state_specs, state, batch
        )

    def end(
        self,
        env_ids: tf.Tensor,
        run_ids: tf.Tensor,
        actions: Nest,
        agent_state: Nest,
        step: Nest,
    ) -> None:
        """Records the steps admitted by `begin`; waits while the queue of unrolls is full.

        Args:
          env_ids: <int32>[batch].
          run_ids: <int64>[batch].
          actions: nest of [batch, ...], the previous actions of the next step.
          agent_state: nest of [batch, ...], the recurrent state before the next step.
          step: nest of [batch, ...], the step to record.
        """
        with tf.device("/cpu:0"):
            _ops().seed_inference_end(
                self._handle,
                env_ids,
                run_ids,
                tf.nest.flatten(actions),
                tf.nest.flatten(agent_state),
                tf.nest.flatten(step),
            )

    def dequeue(self, count: int | tf.Tensor) -> StoredUnrolls:
        """Waits for `count` complete unrolls and returns them, oldest first.

        With `unrolls_per_step`, unrolls beyond those of one training step wait for `trained`.

        Raises:
          tf.errors.OutOfRangeError: the store was closed.
        """
        with tf.device("/cpu:0"):
            env_ids, state, steps = _ops().seed_inference_dequeue(
                self._handle,
                count,
                state_dtypes=_dtypes(tf.nest.flatten(self._state_specs)),
                step_dtypes=_dtypes(tf.nest.flatten(self._step_specs)),
            )
        static = count if isinstance(count, int) else None
        env_ids.set_shape([static])
        return StoredUnrolls(
            env_ids,
            self._pack(self._state_specs, state, [static]),
            self._pack(self._step_specs, steps, [self.num_steps_per_unroll, static]),
        )

    def trained(self) -> None:
        """Signals that the dequeued unrolls are trained on and inference has the new weights.

        Without `unrolls_per_step` it changes nothing.
        """
        if self._takes_turns:
            _ops().seed_inference_trained(self._handle)

    def close(self, done: bool = False) -> None:
        """Ends every wait. From now on `dequeue` raises and `end` drops complete unrolls.

        Args:
          done: whether training needs no more steps: `begin` then fails with OUT_OF_RANGE, at which
            actors exit.
        """
        self.closed = True
        _ops().seed_inference_close(self._handle, done)

    def episodes(self) -> EpisodeStats:
        """Returns the statistics of the episodes that ended since the last call."""
        return EpisodeStats(*(t.numpy() for t in _ops().seed_inference_episodes(self._handle)))

    def counters(self) -> Counters:
        """Totals for logs."""
        return Counters(*(int(v) for v in _ops().seed_inference_counters(self._handle).numpy()))

    def silence(self) -> np.ndarray:
        """Seconds since each environment's last call, <float32>[num_envs]; NaN before its first.

        The time that calls wait for the network or for training does not count.
        """
        return _ops().seed_inference_silence(self._handle).numpy()

    def queue_size(self) -> tf.Tensor:
        """Number of complete unrolls that wait, <int32>[]; works inside a `tf.function`."""
        with tf.device("/cpu:0"):
            counters = _ops().seed_inference_counters(self._handle)
        return tf.cast(counters[Counters._fields.index("queue_size")], tf.int32)

    @staticmethod
    def _pack(specs: Nest, tensors: Sequence[tf.Tensor], leading: Sequence[int | None]) -> Nest:
        for spec, tensor in zip(tf.nest.flatten(specs), tensors, strict=True):
            tensor.set_shape(tf.TensorShape(leading).concatenate(spec.shape))
        return tf.nest.pack_sequence_as(specs, tensors)
