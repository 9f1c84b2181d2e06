"""One training step on however many replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from seed_rl.common.algorithm import Algorithm, StepResult
from seed_rl.common.nest import Nest


class BatchForm:
    """Takes batches of any structure through tf.data, which would make tensors of lists.

    Args:
      encode: applied to batches before.
      decode: undoes it after.
    """

    def __init__(
        self,
        encode: Callable[[Nest], Nest] = lambda batch: batch,
        decode: Callable[[Nest], Nest] = lambda batch: batch,
    ):
        self._encode = encode
        self._decode = decode
        # Behind a function, so that the structure stays what it is.
        self._structure: Callable[[], Nest] | None = None

    def encode(self, batch: Nest) -> tuple[Any, ...]:
        """For the function that makes the batches of a dataset."""
        encoded = self._encode(batch)
        structure = tf.nest.map_structure(lambda _: 0, encoded)
        self._structure = lambda: structure
        return tuple(tf.nest.flatten(encoded))

    def decode(self, batch: tuple[Any, ...]) -> Nest:
        """The batch as it was before `encode`, which has to be traced first."""
        assert self._structure is not None
        return self._decode(tf.nest.pack_sequence_as(self._structure(), batch))


class TrainingStep:
    """Takes a batch, computes gradients on each replica and updates the weights once.

    The loss of each replica is a mean over its part of the batch, and the gradients of the
    replicas are averaged, so that the update does not depend on the number of replicas.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        optimizer: tf.keras.optimizers.Optimizer,
        strategy: tf.distribute.Strategy,
        clip_norm: float | None,
        decode: Callable[[Nest], Nest] = lambda batch: batch,
    ):
        """Builds the optimizer for the variables of the algorithm.

        Args:
          algorithm: with its variables created, in the scope of `strategy`.
          optimizer: any Keras optimizer, made in the scope of `strategy`.
          strategy: of training.
          clip_norm: largest global norm of the averaged gradients; None leaves them.
          decode: undoes what `Algorithm.dataset` did to encode a batch.
        """
        self._algorithm = algorithm
        self._optimizer = optimizer
        self._strategy = strategy
        self._clip_norm = clip_norm
        self._decode = decode
        self._variables = algorithm.trainable_variables()
        with strategy.scope():
            optimizer.build(self._variables)
        self._run = tf.function(self._step, autograph=False)

    def __call__(self, batches: Iterator[Any]) -> tuple[dict[str, tf.Tensor], Nest]:
        """Trains on the next batch.

        Returns:
          (metrics <float32>[] by name, feedback of the loss, batched over all replicas).

        Raises:
          tf.errors.OutOfRangeError: there are no more batches.
        """
        return self._run(batches)

    def _step(self, batches: Iterator[Any]) -> tuple[dict[str, tf.Tensor], Nest]:
        result: StepResult = self._strategy.run(self._replica_step, args=(next(batches),))
        metrics = {
            name: self._strategy.reduce(tf.distribute.ReduceOp.MEAN, value, axis=None)
            for name, value in result.metrics.items()
        }
        feedback = tf.nest.map_structure(
            lambda value: tf.concat(self._strategy.experimental_local_results(value), 0),
            result.feedback,
        )
        return metrics, feedback

    def _replica_step(self, batch: Any) -> StepResult:
        batch = self._decode(batch)
        with tf.GradientTape() as tape:
            result = self._algorithm.loss(batch)
        gradients = tape.gradient(result.loss, self._variables)
        replicas = self._strategy.num_replicas_in_sync
        if replicas > 1:
            context = tf.distribute.get_replica_context()
            gradients = context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients)
        metrics = dict(result.metrics, loss=result.loss)
        gradients, norm = _bounded(gradients, self._clip_norm)
        metrics["gradient_norm"] = norm
        metrics["skipped_steps"] = 1.0 - tf.cast(tf.math.is_finite(norm), tf.float32)
        if replicas > 1:
            # Keras adds up what the replicas apply; each holds the average already.
            gradients = [gradient / replicas for gradient in gradients]
        self._optimizer.apply(gradients, self._variables)
        return StepResult(result.loss, metrics, result.feedback)


def _bounded(
    gradients: list[tf.Tensor | None], clip_norm: float | None
) -> tuple[list[tf.Tensor | None], tf.Tensor]:
    """Scales gradients so that their global norm is at most `clip_norm`.

    If it is not finite (an environment gave NaN, say) they become 0: one bad batch must not spoil
    the weights for good.

    Returns:
      (gradients, their global norm <float32>[] before).
    """
    norm = tf.linalg.global_norm(gradients)
    scale = clip_norm / tf.maximum(norm, clip_norm) if clip_norm else tf.ones_like(norm)
    scale = tf.where(tf.math.is_finite(norm), scale, 0.0)
    # Not a plain product, in which NaN would stay NaN.
    bounded = [g if g is None else tf.math.multiply_no_nan(g, scale) for g in gradients]
    return bounded, norm
