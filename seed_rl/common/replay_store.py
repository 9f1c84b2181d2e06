"""The replay as a `tf.Module`, for existing and users' own code; see `seed_rl.common.replay`."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from seed_rl.common import replay
from seed_rl.common.nest import Nest


class PrioritizedReplay(tf.Module):
    """Elements in compressed host memory, sampled by priority.

    Every method works eagerly and inside a `tf.function` of the process that made the replay.

    Args:
      size: elements held; the oldest go first.
      specs: nest of `tf.TensorSpec` of one element (an unroll).
      importance_sampling_exponent: of the weights, see `sample`.
      name: of the module.

    Raises:
      UserError: a full replay would not fit the memory, or a dtype cannot be stored.
    """

    def __init__(
        self,
        size: int,
        specs: Nest,
        importance_sampling_exponent: float,
        name: str = "PrioritizedReplay",
    ):
        super().__init__(name=name)
        # Behind a function, as tf.Module wraps the dicts and lists that are its attributes.
        self._specs = lambda: specs
        fields = tf.nest.map_structure(_field, specs)
        config = replay.ReplayConfig(
            replay_buffer_size=size,
            replay_buffer_min_size=1,
            replay_ratio=0,  # Who calls decides how often.
            importance_sampling_exponent=importance_sampling_exponent,
        )
        self._replay = replay.PrioritizedReplay(config, fields)

    def insert(self, values: Nest, priorities: tf.Tensor) -> None:
        """Inserts elements.

        Args:
          values: nest of [n, ...].
          priorities: <float32>[n], not negative.

        Raises:
          ValueError, or tf.errors.InvalidArgumentError from a tf.function: values or priorities do
            not fit.
        """
        tf.nest.assert_same_structure(self._specs(), values)

        def insert(priorities: np.ndarray, *leaves: np.ndarray) -> None:
            self._replay.insert(list(leaves), priorities, time_major=False)

        tf.numpy_function(insert, [priorities, *tf.nest.flatten(values)], [])

    def sample(
        self, num_samples: int, priority_exp: float | tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, Nest]:
        """Draws elements with replacement, i with probability p_i ** e / sum_j p_j ** e.

        Args:
          num_samples: how many, n.
          priority_exp: e; 0 draws all alike. A change takes time in proportion to the size.

        Returns:
          (indices <int64>[n] for `update_priorities`, importance weights <float32>[n] of which
          the largest is 1, values, a nest of [n, ...]).

        Raises:
          ValueError, or tf.errors.InvalidArgumentError from a tf.function: there is nothing to
            draw from.
        """
        specs = tf.nest.flatten(self._specs())

        def sample(num_samples: Any, exponent: Any) -> list[np.ndarray]:
            if not len(self._replay):
                raise ValueError("The replay is empty: insert something before sampling.")
            drawn = self._replay.sample(int(num_samples), float(exponent), time_major=False)
            weights = drawn.importance_weights / drawn.importance_weights.max()
            return [drawn.keys, weights, *tf.nest.flatten(drawn.unrolls)]

        dtypes = [tf.int64, tf.float32, *[spec.dtype for spec in specs]]
        indices, weights, *leaves = tf.numpy_function(sample, [num_samples, priority_exp], dtypes)
        static = num_samples if isinstance(num_samples, int) else None
        shapes = [(), (), *[spec.shape for spec in specs]]
        for tensor, shape in zip((indices, weights, *leaves), shapes, strict=True):
            tensor.set_shape([static, *shape])
        return indices, weights, tf.nest.pack_sequence_as(self._specs(), leaves)

    def update_priorities(self, indices: tf.Tensor, priorities: tf.Tensor) -> None:
        """Sets priorities <float32>[n]; indices <int64>[n] of elements that have gone are ignored.

        Raises:
          ValueError, or tf.errors.InvalidArgumentError from a tf.function: a priority is
            negative or not finite.
        """

        def update(indices: np.ndarray, priorities: np.ndarray) -> None:
            self._replay.update_priorities(indices, priorities)

        tf.numpy_function(update, [indices, priorities], [])


def _field(spec: tf.TensorSpec) -> replay.FieldSpec:
    # The first dimension is mostly time, along which neighbours are alike: it compresses well.
    return replay.FieldSpec(tuple(spec.shape), spec.dtype.as_numpy_dtype, time=spec.shape.rank > 0)
