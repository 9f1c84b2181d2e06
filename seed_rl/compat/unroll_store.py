"""Unrolls of many environments, filled step by step, for existing code.

A wrapper of the native `InferenceStore`, which our learners use directly.
"""

from __future__ import annotations

import uuid

import tensorflow as tf

from seed_rl.common.inference.inference_store import InferenceStore
from seed_rl.common.nest import Nest
from seed_rl.common.types import EnvOutput
from seed_rl.compat.tensors import make_time_major


class UnrollStore(tf.Module):
    """Collects the steps of each environment into unrolls.

    An unroll has `num_overlapping_steps + unroll_length + 1` steps; the last
    `num_overlapping_steps + 1` of one are the first of the next. Without a previous unroll, at the
    start and after `reset`, the overlap is zeros: that unroll is complete after `unroll_length + 1`
    steps. (Our learners fill the overlap with real steps instead.)

    Args:
      num_envs: number of environments; their ids are `[0, num_envs)`.
      unroll_length: steps per unroll, without the overlap and the last step.
      timestep_specs: nest of `tf.TensorSpec` of one step, without a batch dimension.
      num_overlapping_steps: steps shared by consecutive unrolls, in addition to one.
      name: name of the module.
    """

    def __init__(
        self,
        num_envs: int,
        unroll_length: int,
        timestep_specs: Nest,
        num_overlapping_steps: int = 0,
        name: str = "UnrollStore",
    ):
        super().__init__(name=name)
        self._num_overlapping_steps = num_overlapping_steps
        self._store = InferenceStore(
            num_envs=num_envs,
            num_training_envs=num_envs,
            unroll_length=unroll_length,
            num_overlapping_steps=num_overlapping_steps,
            queue_capacity=num_envs,  # A step completes at most one unroll of each environment.
            action_specs=(),
            initial_state=(),
            step_specs=timestep_specs,
        )
        # In a function, because tf.Module wraps dicts and lists that are its attributes.
        self._unroll_specs = lambda: tf.nest.map_structure(
            lambda s: tf.TensorSpec([self._store.num_steps_per_unroll, *s.shape], s.dtype, s.name),
            timestep_specs,
        )
        with tf.device("/cpu:0"), self.name_scope:
            self._lives = tf.Variable(tf.ones([num_envs], tf.int64), trainable=False, name="lives")
            everywhere = tf.fill([num_envs], True)
            self._lacks_overlap = tf.Variable(everywhere, trainable=False, name="lacks_overlap")
            # A unique name: sections of the same name are shared by all stores of the process.
            self._section = tf.CriticalSection(name="append", shared_name=uuid.uuid4().hex)

    @property
    def unroll_specs(self) -> Nest:
        """Nest of `tf.TensorSpec` of one unroll, [overlap + unroll_length + 1, ...]."""
        return self._unroll_specs()

    def append(self, env_ids: tf.Tensor, values: Nest) -> tuple[tf.Tensor, Nest]:
        """Appends one step to each of the given environments.

        Args:
          env_ids: <int32>[batch], all different.
          values: nest of [batch, ...].

        Returns:
          (ids <int32>[n] of the environments whose unroll is now complete, their unrolls as a nest
          of [n, overlap + unroll_length + 1, ...]).

        Raises:
          tf.errors.InvalidArgumentError: an id occurs twice or is out of range.
        """
        env_ids = tf.convert_to_tensor(env_ids, tf.int32)
        values = tf.nest.map_structure(
            lambda s, v: tf.convert_to_tensor(v, s.dtype), self.unroll_specs, values
        )
        # Prevents another thread from taking the unrolls counted for this one.
        ids, *unrolls = self._section.execute(lambda: self._append(env_ids, values))
        return ids, tf.nest.pack_sequence_as(self.unroll_specs, unrolls)

    def reset(self, env_ids: tf.Tensor) -> None:
        """Drops the steps of incomplete unrolls of the environments `env_ids` <int32>[k]."""
        env_ids = tf.convert_to_tensor(env_ids, tf.int32)
        self._section.execute(lambda: self._reset(env_ids))

    def _reset(self, env_ids: tf.Tensor) -> tf.Tensor:
        ones = tf.ones(tf.shape(env_ids), tf.int64)
        self._lives.scatter_add(tf.IndexedSlices(ones, env_ids))
        return self._mark(env_ids, lacks_overlap=True)

    def _mark(self, env_ids: tf.Tensor, lacks_overlap: bool) -> tf.Tensor:
        marks = tf.fill(tf.shape(env_ids), lacks_overlap)
        return self._lacks_overlap.scatter_update(tf.IndexedSlices(marks, env_ids))

    def _append(self, env_ids: tf.Tensor, values: Nest) -> list[tf.Tensor]:
        zeros = tf.zeros(tf.shape(env_ids))
        false = tf.zeros(tf.shape(env_ids), tf.bool)
        known = tf.clip_by_value(env_ids, 0, self._store.num_envs - 1)
        lives = tf.gather(self._lives, known)
        # `begin` refuses invalid ids, so call it before changing anything.
        steps = tf.zeros(tf.shape(env_ids), tf.int32)
        self._store.begin(env_ids, lives, EnvOutput(zeros, false, (), false, steps), zeros)
        if self._num_overlapping_steps:
            lacking = tf.gather(self._lacks_overlap, known)
            tf.cond(
                tf.reduce_any(lacking),
                lambda: self._fill_overlap(env_ids[lacking], lives[lacking]),
                lambda: self._lacks_overlap.read_value(),
            )
        self._store.end(env_ids, lives, (), (), values)
        count = self._store.queue_size()
        return tf.cond(count > 0, lambda: self._take(count), self._nothing)

    def _fill_overlap(self, env_ids: tf.Tensor, lives: tf.Tensor) -> tf.Tensor:
        repeated = tf.repeat(env_ids, self._num_overlapping_steps)
        blank = tf.nest.map_structure(
            lambda s: tf.zeros([tf.size(repeated), *s.shape[1:]], s.dtype), self.unroll_specs
        )
        self._store.end(repeated, tf.repeat(lives, self._num_overlapping_steps), (), (), blank)
        return self._mark(env_ids, lacks_overlap=False)

    def _take(self, count: tf.Tensor) -> list[tf.Tensor]:
        unrolls = self._store.dequeue(count)
        return [unrolls.env_ids, *tf.nest.flatten(make_time_major(unrolls.steps))]

    def _nothing(self) -> list[tf.Tensor]:
        specs = tf.nest.flatten(self.unroll_specs)
        return [tf.zeros([0], tf.int32), *[tf.zeros([0, *s.shape], s.dtype) for s in specs]]
