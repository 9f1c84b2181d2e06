"""Random numbers of training steps, which obey `tf.random.set_seed` even if XLA compiles them.

XLA's own random numbers are the same in every process, whatever the seed: all seeds of a study
would shuffle their minibatches alike.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

import tensorflow as tf

_COMPILED = contextvars.ContextVar("compiled", default=False)


@contextlib.contextmanager
def compiled_by_xla() -> Iterator[None]:
    """The functions of this module are traced for XLA."""
    token = _COMPILED.set(True)
    try:
        yield
    finally:
        _COMPILED.reset(token)


def normal(shape: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Standard normal numbers of a shape."""
    if _COMPILED.get():
        return tf.random.stateless_normal(shape, _seed(), dtype=dtype)
    return tf.random.normal(shape, dtype=dtype)


def categorical(logits: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Choices <dtype>[batch, 1] with probabilities softmax(logits), <float32>[batch, choices]."""
    if _COMPILED.get():
        return tf.random.stateless_categorical(logits, 1, _seed(), dtype=dtype)
    return tf.random.categorical(logits, 1, dtype=dtype)


def shuffle(values: tf.Tensor) -> tf.Tensor:
    """`values` in random order along their first dimension."""
    if _COMPILED.get():
        # XLA compiles TensorFlow 2.21's `stateless_shuffle` for minutes.
        return tf.gather(values, tf.argsort(tf.random.stateless_uniform(values.shape[:1], _seed())))
    return tf.random.shuffle(values)


def _seed() -> tf.Tensor:
    """A seed <int32>[2] for a stateless op: a number of this run, and XLA's next number."""
    limit = tf.int32.max
    with tf.init_scope():
        run = tf.random.uniform([], maxval=limit, dtype=tf.int32)
    return tf.stack([run, tf.random.uniform([], maxval=limit, dtype=tf.int32)])
