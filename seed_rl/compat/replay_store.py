"""The replay as a `tf.Module`, for existing code; see `seed_rl.common.replay`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from seed_rl.common import replay
from seed_rl.common.nest import Nest
from seed_rl.common.replay.hindsight import map_steps


class ReplayStore(tf.Module):
    """Elements in compressed host memory, sampled by priority.

    Elements are identified by their slot in [0, size). Slots are filled cyclically from 0. (The
    underlying replay, which our learners use directly, has keys that are never reused.)

    Every method works eagerly and inside a `tf.function`, in the process that created the replay.

    Args:
      size: number of elements held; the oldest are evicted first.
      specs: nest of `tf.TensorSpec` of one element (an unroll).
      importance_sampling_exponent: exponent of the importance weights.
      name: name of the module.

    Attributes:
      num_inserted: variable <int64>[], elements inserted so far.

    Raises:
      UserError: a full replay would not fit in memory, or a dtype cannot be stored.
    """

    def __init__(
        self,
        size: int,
        specs: Nest,
        importance_sampling_exponent: float,
        name: str = "PrioritizedReplay",
    ):
        super().__init__(name=name)
        # In a function, because tf.Module wraps dicts and lists that are its attributes.
        self._specs = lambda: specs
        fields = tf.nest.map_structure(_field, specs)
        config = replay.ReplayConfig(
            replay_buffer_size=size,
            replay_buffer_min_size=1,
            replay_ratio=0,  # The caller decides how often to sample.
            importance_sampling_exponent=importance_sampling_exponent,
        )
        self._replay = replay.PrioritizedReplay(config, fields)
        self._size = size
        with tf.device("/cpu:0"), self.name_scope:
            self.num_inserted = tf.Variable(0, trainable=False, dtype=tf.int64, name="num_inserted")

    def insert(self, values: Nest, priorities: tf.Tensor) -> tf.Tensor:
        """Inserts elements.

        Args:
          values: nest of [n, ...].
          priorities: <float32>[n], not negative.

        Returns:
          The slots <int64>[n] of the elements.

        Raises:
          ValueError, or tf.errors.InvalidArgumentError from a tf.function: values do not match the
            specs, or priorities are invalid.
        """
        tf.nest.assert_same_structure(self._specs(), values)

        def insert(priorities: np.ndarray, *leaves: np.ndarray) -> np.ndarray:
            keys = self._replay.insert(list(leaves), priorities)
            return keys % self._size

        slots = self._in_order(insert, [priorities, *tf.nest.flatten(values)], tf.int64)
        slots.set_shape(tf.convert_to_tensor(priorities).shape[:1])
        self.num_inserted.assign_add(tf.size(slots, tf.int64))
        return slots

    def sample(
        self, num_samples: int, priority_exp: float | tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, Nest]:
        """Draws elements with replacement, i with probability p_i ** e / sum_j p_j ** e.

        Args:
          num_samples: number of elements, n.
          priority_exp: e; 0 samples uniformly, with weights of 1. A change takes O(size).

        Returns:
          (slots <int64>[n] for `update_priorities`, importance weights <float32>[n] divided by
          their maximum, values as a nest of [n, ...]).

        Raises:
          ValueError, or tf.errors.InvalidArgumentError from a tf.function: the replay is empty.
        """
        specs = tf.nest.flatten(self._specs())

        def sample(num_samples: Any, exponent: Any) -> list[np.ndarray]:
            if not len(self._replay):
                raise ValueError("The replay is empty: insert something before sampling.")
            self._replay.storage.set_priority_exponent(float(exponent))
            drawn = self._replay.sample(int(num_samples))
            weights = drawn.importance_weights / drawn.importance_weights.max()
            return [drawn.keys % self._size, weights, *tf.nest.flatten(drawn.unrolls)]

        dtypes = [tf.int64, tf.float32, *[spec.dtype for spec in specs]]
        slots, weights, *leaves = self._in_order(sample, [num_samples, priority_exp], dtypes)
        static = num_samples if isinstance(num_samples, int) else None
        shapes = [(), (), *[spec.shape for spec in specs]]
        for tensor, shape in zip((slots, weights, *leaves), shapes, strict=True):
            tensor.set_shape([static, *shape])
        return slots, weights, tf.nest.pack_sequence_as(self._specs(), leaves)

    def update_priorities(self, indices: tf.Tensor, priorities: tf.Tensor) -> None:
        """Sets the priorities of the elements currently in the given slots.

        Args:
          indices: <int64>[n], slots.
          priorities: <float32>[n].

        Raises:
          ValueError, or tf.errors.InvalidArgumentError from a tf.function: a slot is out of range,
            or a priority is negative or not finite.
        """

        def update(slots: np.ndarray, priorities: np.ndarray) -> None:
            if np.any((slots < 0) | (slots >= self._size)):
                raise ValueError(f"A slot is out of the range [0, {self._size}): {slots}")
            newest = self._replay.storage.stats().next_key - 1
            self._replay.update_priorities(newest - (newest - slots) % self._size, priorities)

        self._in_order(update, [indices, priorities], [])

    def _in_order(self, function: Callable[..., Any], inputs: list[Any], dtypes: Any) -> Any:
        """`tf.numpy_function`, after earlier calls in the same `tf.function` and before later ones.

        TensorFlow orders loops, conditions and nested functions by the variables that they use, and
        this is how it sees that each call depends on the one before.
        """
        with tf.control_dependencies([self.num_inserted.read_value()]):
            outputs = tf.numpy_function(function, inputs, dtypes)
        with tf.control_dependencies(tf.nest.flatten(outputs)):
            self.num_inserted.assign_add(0)
        return outputs


class HindsightReplayStore(ReplayStore):
    """A replay for environments with goals; see `seed_rl.common.replay.Hindsight`.

    Elements are windows of steps: a named tuple with a field `env_outputs` whose observations are
    dicts of `observation`, `achieved_goal` and `desired_goal`.

    Args:
      size: number of windows held.
      specs: nest of `tf.TensorSpec` of one window, [time, ...]; a field `agent_state` has no time.
      importance_sampling_exponent: exponent of the importance weights.
      compute_reward_fn: `compute_reward_fn(achieved_goal=, desired_goal=)` returns the rewards [n]
        of actions that led to achieved goals [n, ...]; both are arrays.
      unroll_length: a sample has `unroll_length` + 1 steps of its window.
      substitution_probability: probability of replacing a goal.
      name: name of the module.
    """

    def __init__(
        self,
        size: int,
        specs: Nest,
        importance_sampling_exponent: float,
        compute_reward_fn: Callable[..., Any],
        unroll_length: int,
        substitution_probability: float,
        name: str = "HindsightExperienceReplay",
    ):
        super().__init__(size, specs, importance_sampling_exponent, name)
        self._hindsight = replay.Hindsight(
            compute_reward_fn, unroll_length, substitution_probability
        )
        length = unroll_length + 1
        self._part_specs = lambda: map_steps(
            lambda spec: tf.TensorSpec([length, *spec.shape[1:]], spec.dtype), specs
        )

    def sample(
        self, num_samples: int, priority_exp: float | tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, Nest]:
        """Draws windows as `ReplayStore.sample`, and returns relabelled parts of them.

        Returns:
          (slots <int64>[n], importance weights <float32>[n] divided by their maximum, values as a
          nest of [n, unroll_length + 1, ...]).
        """
        slots, weights, windows = super().sample(num_samples, priority_exp)
        specs = tf.nest.flatten(self._part_specs())

        def relabel(*leaves: np.ndarray) -> list[np.ndarray]:
            windows = map_steps(_swap, tf.nest.pack_sequence_as(self._specs(), leaves))
            return tf.nest.flatten(map_steps(_swap, self._hindsight(windows)))

        leaves = tf.numpy_function(
            relabel, tf.nest.flatten(windows), [spec.dtype for spec in specs]
        )
        for tensor, spec in zip(leaves, specs, strict=True):
            tensor.set_shape([slots.shape[0], *spec.shape])
        return slots, weights, tf.nest.pack_sequence_as(self._part_specs(), leaves)


def _swap(array: np.ndarray) -> np.ndarray:
    return np.swapaxes(array, 0, 1)


def _field(spec: tf.TensorSpec) -> replay.FieldSpec:
    # Without a time axis, as the replay's comes first: integers compress less.
    return replay.FieldSpec(tuple(spec.shape), spec.dtype.as_numpy_dtype, time=False)
