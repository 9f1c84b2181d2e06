"""What SAC computes from its critics: the value of an action, targets, and the critics' loss.

Critics that predict one number are clipped double Q (Fujimoto et al. 2018): the smallest counts,
and the loss is a squared error. Critics that predict quantiles of the return are TQC (Kuznetsov et
al. 2020, arXiv 2005.04269): the largest of all critics' quantiles are dropped from targets.

Below, `q` is <float32>[time, batch, critics], or [time, batch, critics, quantiles].
"""

from __future__ import annotations

import tensorflow as tf


def value(q: tf.Tensor) -> tf.Tensor:
    """Value <float32>[time, batch] of actions, which the actor maximizes."""
    return tf.reduce_min(q, axis=-1) if q.shape.rank == 3 else tf.reduce_mean(q, axis=[-2, -1])


def means(q: tf.Tensor) -> tf.Tensor:
    """Each critic's value <float32>[time, batch, critics]."""
    return q if q.shape.rank == 3 else tf.reduce_mean(q, axis=-1)


def bootstrap_atoms(q: tf.Tensor, dropped_per_critic: int) -> tf.Tensor:
    """Values <float32>[time, batch, atoms] from which targets bootstrap."""
    if q.shape.rank == 3:
        return value(q)[..., tf.newaxis]
    critics, quantiles = q.shape[-2:]
    atoms = tf.reshape(q, tf.concat([tf.shape(q)[:2], [critics * quantiles]], axis=0))
    return tf.sort(atoms, axis=-1)[..., : critics * (quantiles - dropped_per_critic)]


def loss(q: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Loss <float32>[time, batch] of all critics.

    Half the squared error of each, or its quantile Huber loss (TQC, section 4.3): the mean of
    |tau_i - [y < q_i]| H(y - q_i) over targets y and quantiles q_i, at tau_i = (i + 1/2) / M.

    Args:
      q: of the actions taken.
      targets: <float32>[time, batch, atoms].
    """
    if q.shape.rank == 3:
        return 0.5 * tf.reduce_sum(tf.square(targets - q), axis=-1)
    errors = targets[..., tf.newaxis, :, tf.newaxis] - q[..., tf.newaxis, :]
    bounded = tf.clip_by_value(errors, -1.0, 1.0)
    huber = bounded * (errors - 0.5 * bounded)
    quantiles = q.shape[-1]
    tau = (tf.range(quantiles, dtype=tf.float32) + 0.5) / quantiles
    weighted = tf.where(errors < 0, 1.0 - tau, tau) * huber
    return tf.reduce_sum(tf.reduce_mean(weighted, axis=[-2, -1]), axis=-1)
