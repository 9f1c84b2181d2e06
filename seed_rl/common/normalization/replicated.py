"""Statistics on several replicas: variables with a common value, and sums over a whole batch.

These work within `strategy.run`, and outside any strategy, where there is only one part.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf


def several() -> tf.distribute.ReplicaContext | None:
    """The context of this replica if there are others, else None."""
    context = tf.distribute.get_replica_context()
    return context if context is not None and context.num_replicas_in_sync > 1 else None


def sums(parts: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The sum of each tensor over all replicas, which must all ask for it; no gradient flows."""
    values = [tf.stop_gradient(part) for part in parts]
    context = several()
    return values if context is None else context.all_reduce(tf.distribute.ReduceOp.SUM, values)


def variable(initial: np.ndarray, name: str, trainable: bool = False) -> tf.Variable:
    """A variable to which all replicas assign the same value.

    Create it in the scope of the training strategy.

    Args:
      initial: initial value; a NumPy value, so that the variable may be created within a
        `tf.function`.
      name: of the variable.
      trainable: whether an optimizer changes it too.
    """
    with tf.init_scope():
        return tf.Variable(
            initial,
            trainable=trainable,
            name=name,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )
