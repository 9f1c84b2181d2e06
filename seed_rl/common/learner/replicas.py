"""Means and maxima over a batch that several replicas hold parts of.

A training step averages the gradients of its replicas (`training.TrainingStep`). A loss that
divides by something it counts in its own part would weigh the elements of sparse parts more: the
update would depend on how the batch was split. It has to divide by what the whole batch has:

    mean = replicas.BatchMean(real)                  # counts over all replicas
    loss = mean(tf.square(errors))                   # averaged over replicas, the batch's mean
    weights /= replicas.maximum(weights)

The functions work wherever a loss runs: within `strategy.run`, and outside of any strategy, where
the part is the batch.
"""

from __future__ import annotations

import tensorflow as tf


class BatchMean:
    """Mean over those elements of a batch that count, for losses and metrics.

    On each replica it gives a part's share of the mean, scaled so that the average over the
    replicas is the mean over the elements that count in all parts together. Without any it is 0.
    """

    def __init__(self, counted: tf.Tensor):
        """Counts; on all replicas alike, since they wait for each other.

        Args:
          counted: <float32>[...] 1 where an element counts, 0 elsewhere.
        """
        self._counted = counted > 0
        self._count = _mean_over_replicas(tf.reduce_sum(counted))

    def __call__(self, values: tf.Tensor) -> tf.Tensor:
        """The mean <float32>[] of `values`, <float32>[...] like `counted`."""
        # Not a product: what does not count may be infinite, and must not turn into NaN.
        total = tf.reduce_sum(tf.where(self._counted, values, tf.zeros_like(values)))
        return tf.math.divide_no_nan(total, self._count)


def maximum(values: tf.Tensor) -> tf.Tensor:
    """The largest of `values` <float32>[...] over all replicas, <float32>[]; no gradient flows."""
    largest = tf.stop_gradient(tf.reduce_max(values))
    context = _several()
    if context is None:
        return largest
    # Replicas can add up, but not compare: each puts its own into a place of its own.
    own = tf.one_hot(
        context.replica_id_in_sync_group,
        context.num_replicas_in_sync,
        on_value=largest,
        off_value=tf.zeros_like(largest),
    )
    return tf.reduce_max(context.all_reduce(tf.distribute.ReduceOp.SUM, own))


def _mean_over_replicas(value: tf.Tensor) -> tf.Tensor:
    value = tf.stop_gradient(value)
    context = _several()
    return value if context is None else context.all_reduce(tf.distribute.ReduceOp.MEAN, value)


def _several() -> tf.distribute.ReplicaContext | None:
    """The context of this replica, if there are others."""
    context = tf.distribute.get_replica_context()
    return context if context is not None and context.num_replicas_in_sync > 1 else None
