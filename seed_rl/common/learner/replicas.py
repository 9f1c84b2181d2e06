"""Means and maxima over a batch that is split across replicas.

A training step averages the gradients of its replicas (`training.TrainingStep`). A loss that
divides by a count over its own part would give more weight to the elements of sparse parts: the
update would depend on how the batch was split. It must divide by the count over the whole batch:

    mean = replicas.BatchMean(mask)                  # counts over all replicas
    loss = mean(tf.square(errors))                   # averaged over replicas, the batch's mean
    weights /= replicas.maximum(weights)

Both work wherever a loss runs: within `strategy.run`, and outside any strategy, where the part is
the whole batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from seed_rl.common.normalization.replicated import several


class BatchMean:
    """Mean over the unmasked elements of a batch, for losses and metrics.

    Calling it gives each replica its part's share of the mean, scaled so that the average over the
    replicas, which `minimize` takes, is the mean over the unmasked elements of all parts; 0 if
    there are none. On one of several replicas that is not the mean itself: see `everywhere`.
    """

    def __init__(self, mask: tf.Tensor):
        """Counts the unmasked elements. Every replica must do so, since they wait for each other.

        Args:
          mask: <float32>[...] 1 where an element counts, 0 elsewhere.
        """
        self._mask = mask > 0
        self._count = _mean_over_replicas(tf.reduce_sum(mask))

    def __call__(self, values: tf.Tensor) -> tf.Tensor:
        """The mean <float32>[] of `values`, <float32>[...] in the shape of the mask."""
        # Not a product: a masked value may be infinite, and must not turn into NaN.
        total = tf.reduce_sum(tf.where(self._mask, values, tf.zeros_like(values)))
        return tf.math.divide_no_nan(total, self._count)

    def everywhere(self, values: tf.Tensor) -> tf.Tensor:
        """The mean itself on every replica, for statistics; no gradient flows."""
        return _mean_over_replicas(self(values))

    def explained_variance(self, predictions: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """1 - Var(targets - predictions) / Var(targets) on every replica, <float32>[]; no gradient.

        1: predictions are right except for a constant; 0: no better than one, or all targets are
        equal; below 0: worse.

        Args:
          predictions: <float32>[...] in the shape of the mask.
          targets: <float32>[...] in the shape of the mask.
        """
        both = targets, targets - predictions
        means = self._everywhere(both)
        variances = self._everywhere([tf.square(v - m) for v, m in zip(both, means, strict=True)])
        return tf.math.divide_no_nan(variances[0] - variances[1], variances[0])

    def _everywhere(self, several: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """`everywhere` of each, in one exchange: replicas wait for each other in each."""
        return tf.unstack(_mean_over_replicas(tf.stack([self(values) for values in several])))


def maximum(values: tf.Tensor) -> tf.Tensor:
    """The largest of `values` <float32>[...] over all replicas, <float32>[]; no gradient flows."""
    largest = tf.stop_gradient(tf.reduce_max(values))
    context = several()
    if context is None:
        return largest
    # all_reduce has sums but no maxima: each replica adds its value at a separate index.
    own = tf.one_hot(
        context.replica_id_in_sync_group,
        context.num_replicas_in_sync,
        on_value=largest,
        off_value=tf.zeros_like(largest),
    )
    return tf.reduce_max(context.all_reduce(tf.distribute.ReduceOp.SUM, own))


def _mean_over_replicas(value: tf.Tensor) -> tf.Tensor:
    value = tf.stop_gradient(value)
    context = several()
    return value if context is None else context.all_reduce(tf.distribute.ReduceOp.MEAN, value)
