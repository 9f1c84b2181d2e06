"""Nests of tensors kept between calls, in plain TensorFlow, for existing code.

Our learners use the native `InferenceStore` instead, which does all of this in two ops.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from seed_rl.common.nest import Nest


class Aggregator(tf.Module):
    """A table with one row, a nest of tensors, per environment.

    Args:
      num_envs: number of rows; environment ids are `[0, num_envs)`.
      specs: nest of `tf.TensorSpec` of a row.
      name: name of the module.
    """

    def __init__(self, num_envs: int, specs: Nest, name: str = "Aggregator"):
        super().__init__(name=name)
        # In a function, because tf.Module wraps dicts and lists that are its attributes.
        self._specs = lambda: specs
        with self.name_scope:
            self._columns = [
                tf.Variable(tf.zeros([num_envs, *spec.shape], spec.dtype), trainable=False)
                for spec in tf.nest.flatten(specs)
            ]

    def reset(self, env_ids: tf.Tensor) -> None:
        """Sets the rows of `env_ids` <int32>[k] to zero."""
        for column in self._columns:
            zeros = tf.zeros(tf.concat([tf.shape(env_ids), column.shape[1:]], 0), column.dtype)
            column.scatter_update(tf.IndexedSlices(zeros, env_ids))

    def add(self, env_ids: tf.Tensor, values: Nest) -> None:
        """Adds values to rows; ids may repeat, and then all their values are added.

        Args:
          env_ids: <int32>[k].
          values: nest of [k, ...].
        """
        for column, value in self._matched(values):
            column.scatter_add(tf.IndexedSlices(value, env_ids))

    def read(self, env_ids: tf.Tensor) -> Nest:
        """The rows of `env_ids` <int32>[k], a nest of [k, ...]."""
        rows = [column.sparse_read(env_ids) for column in self._columns]
        return tf.nest.pack_sequence_as(self._specs(), rows)

    def replace(
        self,
        env_ids: tf.Tensor,
        values: Nest,
        debug_op_name: str = "",
        debug_tensors: list[tf.Tensor] | None = None,
    ) -> None:
        """Sets rows.

        Args:
          env_ids: <int32>[k], all different.
          values: nest of [k, ...].
          debug_op_name: shown in the error message.
          debug_tensors: shown in the error message.

        Raises:
          tf.errors.InvalidArgumentError: an id occurs twice.
        """
        env_ids = _assert_different(env_ids, [debug_op_name, *(debug_tensors or [])])
        for column, value in self._matched(values):
            column.scatter_update(tf.IndexedSlices(value, env_ids))

    def _matched(self, values: Nest) -> list[tuple[tf.Variable, tf.Tensor]]:
        tf.nest.assert_same_structure(self._specs(), values)
        return list(zip(self._columns, tf.nest.flatten(values), strict=True))


def _assert_different(env_ids: tf.Tensor, details: list[Any]) -> tf.Tensor:
    """Returns `env_ids` after checking that they differ; ops that use the result run after that."""
    check = tf.debugging.Assert(
        tf.equal(tf.size(tf.unique(env_ids)[0]), tf.size(env_ids)),
        ["Duplicate environment ids", env_ids, *details],
        summarize=1024,
    )
    with tf.control_dependencies([check] if check is not None else []):
        return tf.identity(env_ids)


def get_non_dying_envs(
    envs_needing_reset: tf.Tensor, reset_mask: tf.Tensor, env_ids: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Selects the rows of a batch to keep after restarts of actors.

    If an actor dies and restarts quickly, one batch may hold the last step of its old life and the
    first step of the new one. Of an environment that needs a reset, only the latter is kept.

    Args:
      envs_needing_reset: <int32>[k], ids of the environments that begin a new life.
      reset_mask: <bool>[batch], whether a row belongs to such a new life.
      env_ids: <int32>[batch].

    Returns:
      (mask <bool>[batch] of the rows to keep, environment ids <int32>[n] of these rows).

    Raises:
      tf.errors.InvalidArgumentError: two of these rows have the same environment id.
    """
    env_ids = tf.convert_to_tensor(env_ids, tf.int32)
    ids, needing = env_ids[:, tf.newaxis], tf.cast(envs_needing_reset, tf.int32)[tf.newaxis]
    begins_anew = tf.reduce_any(tf.equal(ids, needing), axis=1)
    keep = tf.logical_or(tf.logical_not(begins_anew), reset_mask)
    kept = _assert_different(tf.boolean_mask(env_ids, keep), [env_ids])
    with tf.control_dependencies([kept]):
        return tf.identity(keep), kept


class StructuredFIFOQueue(tf.queue.FIFOQueue):
    """A queue whose elements are nests of tensors.

    Args:
      capacity: maximum number of elements; `enqueue` waits while the queue is full.
      specs: nest of `tf.TensorSpec` of an element.
      shared_name: as for `tf.queue.FIFOQueue`.
      name: name of the op.
    """

    def __init__(
        self,
        capacity: int,
        specs: Nest,
        shared_name: str | None = None,
        name: str = "structured_fifo_queue",
    ):
        self._specs = specs
        flat = tf.nest.flatten(specs)
        super().__init__(
            capacity,
            [spec.dtype for spec in flat],
            [spec.shape for spec in flat],
            shared_name=shared_name,
            name=name,
        )

    def dequeue(self, name: str | None = None) -> Nest:
        """Removes and returns the oldest element; waits while the queue is empty."""
        return self._packed(super().dequeue(name=name))

    def dequeue_many(self, batch_size: int | tf.Tensor, name: str | None = None) -> Nest:
        """Removes and returns the `batch_size` oldest elements, a nest of [batch_size, ...]."""
        return self._packed(super().dequeue_many(batch_size, name=name))

    def enqueue(self, vals: Nest, name: str | None = None) -> Any:
        """Adds an element; waits while the queue is full."""
        return super().enqueue(self._flat(vals), name=name)

    def enqueue_many(self, vals: Nest, name: str | None = None) -> Any:
        """Adds the elements of a nest of [k, ...]; waits while the queue is full."""
        return super().enqueue_many(self._flat(vals), name=name)

    def _flat(self, values: Nest) -> list[Any]:
        tf.nest.assert_same_structure(self._specs, values)
        return tf.nest.flatten(values)

    def _packed(self, tensors: Any) -> Nest:
        return tf.nest.pack_sequence_as(self._specs, tf.nest.flatten(tensors))
