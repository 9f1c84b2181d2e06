"""One training step on any number of replicas."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from seed_rl.common import random_numbers
from seed_rl.common.errors import UserError
from seed_rl.common.learner import compiling
from seed_rl.common.learner.algorithm import Algorithm, StepResult
from seed_rl.common.nest import Nest
from seed_rl.common.normalization import replicated

Gradients = list[tf.Tensor | None]

BATCHES_END = (
    tf.errors.OutOfRangeError,
    tf.errors.CancelledError,
    tf.errors.InvalidArgumentError,  # How tf.data reports a closed queue.
)
"""What taking a batch raises once the store is closed."""

_Trained = tuple[dict[str, tf.Tensor], Nest]
"""What `TrainingStep.run` returns."""


class TrainingStep:
    """Runs the algorithm's update on each replica's part of a batch.

    Each gradient step averages the gradients of the replicas. A loss is a mean over the replica's
    part of the batch, or over the unmasked elements of the whole batch (`replicas.BatchMean`), so
    that the update does not depend on the number of replicas.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        optimizer: tf.keras.optimizers.Optimizer,
        strategy: tf.distribute.Strategy,
        clip_norm: float | None,
        decode: Callable[[Nest], Nest] = lambda batch: batch,
        jit: str = "false",
    ):
        """Builds the optimizer for the variables of the algorithm.

        Args:
          algorithm: with its variables created, in the scope of `strategy`.
          optimizer: any Keras optimizer, created in the scope of `strategy`.
          strategy: training strategy.
          clip_norm: maximum global norm of the averaged gradients, and separately of those of
            `Algorithm.clipped_apart`; None: no clipping.
          decode: inverse of the `encode` that `Algorithm.dataset` was given.
          jit: `DeviceConfig.jit`; "auto" compiles only what pays, and what XLA can compile without
            changing it.

        Raises:
          UserError: `jit` is "true" and there are several replicas.
        """
        self._algorithm = algorithm
        self._strategy = strategy
        self._decode = decode
        variables = algorithm.trainable_variables()
        self._minimize = functools.partial(
            minimize,
            optimizer=optimizer,
            variables=variables,
            clip_norm=clip_norm,
            clipped_apart=algorithm.clipped_apart(),
        )
        with strategy.scope():
            optimizer.build(variables)
        self._required = jit == "true"
        self._compiled = compiling.compiles(jit, algorithm, strategy)
        self._proven = False
        if self._compiled and compiling.device_type(strategy) == "GPU":
            compiling.without_triton()
        self._run = tf.function(self._step, autograph=False)

    def run(self, batches: Any, on_lost_batch: Callable[[], object] = lambda: None) -> _Trained:
        """Trains on the next batch of an iterator, or on a batch.

        If XLA fails at the first batch and compilation is not required, the step runs without it;
        an iterator has then lost that batch, and `on_lost_batch` is called before the next is
        requested.

        Returns:
          (metrics <float32>[] by name, feedback of the loss, batched over all replicas).

        Raises:
          tf.errors.OutOfRangeError: there are no more batches.
          UserError: XLA must compile the step, and cannot.
        """
        try:
            result = self._run(batches)
        except tf.errors.OpError as error:
            if not self._does_without_xla(error):
                raise
            self._run = tf.function(self._step, autograph=False)
            on_lost_batch()
            result = self._run(batches)
        self._proven = True
        return result

    def _does_without_xla(self, error: tf.errors.OpError) -> bool:
        """Whether XLA has failed to compile the step, which then runs without it."""
        if not self._compiled or self._proven:
            return False
        refused = "tf2xla conversion failed" in error.message
        if not refused and (self._required or isinstance(error, BATCHES_END)):
            return False
        self._do_not_compile(
            compiling.refusal(error.message) if refused else compiling.first_line(error.message)
        )
        return True

    def _do_not_compile(self, reason: str) -> None:
        if self._required:
            raise UserError(f"--jit=true: {reason}. Leave --jit=true out.")
        logging.warning("Training steps are not compiled (--jit): %s.", reason)
        self._compiled = False

    def _step(self, batches: Any) -> _Trained:
        batch = next(batches) if isinstance(batches, Iterator) else batches
        step = self._compiled_step if self._compiled else self._replica_step
        result: StepResult = self._strategy.run(step, args=(batch,))
        local = self._strategy.experimental_local_results
        metrics = {name: local(value)[0] for name, value in result.metrics.items()}
        feedback = tf.nest.map_structure(lambda value: tf.concat(local(value), 0), result.feedback)
        return metrics, feedback

    def _compiled_step(self, batch: Any) -> StepResult:
        """Calls `_replica_step`, compiled unless XLA would change what it computes."""
        step = tf.function(self._replica_step, jit_compile=True, autograph=False)
        # With tf.config.run_functions_eagerly there is no graph, and XLA compiles nothing.
        if not tf.executing_eagerly() and (ops := compiling.changed_by_xla(step, batch)):
            self._do_not_compile(f"XLA would ignore or change {', '.join(sorted(ops))}")
            return self._replica_step(batch)
        return step(batch)

    def _replica_step(self, batch: Any) -> StepResult:
        with random_numbers.compiled_by_xla() if self._compiled else contextlib.nullcontext():
            result = self._algorithm.update(self._decode(batch), self._minimize)
        context = replicated.several()
        if context is None:
            return result
        # One reduction for all metrics: each reduction waits for the other replicas.
        values = tf.stack([tf.cast(value, tf.float32) for value in result.metrics.values()])
        means = tf.unstack(context.all_reduce(tf.distribute.ReduceOp.MEAN, values))
        return result._replace(metrics=dict(zip(result.metrics, means, strict=True)))


def minimize(
    loss: Callable[[], StepResult],
    optimizer: tf.keras.optimizers.Optimizer,
    variables: Sequence[tf.Variable],
    clip_norm: float | None,
    clipped_apart: Sequence[tf.Variable] = (),
) -> StepResult:
    """One gradient step on a replica, by a built optimizer of Keras; see `Minimize`."""
    with tf.GradientTape() as tape:
        result = loss()
    gradients = tape.gradient(result.loss, variables)
    # Sums the rows that gradients of embeddings repeat, and clipping would count one by one.
    gradients = [g if g is None else tf.convert_to_tensor(g) for g in gradients]
    context = tf.distribute.get_replica_context()
    replicas = context.num_replicas_in_sync
    if replicas > 1:
        # A variable that the loss does not use has None on every replica.
        used = [g for g in gradients if g is not None]
        means = iter(context.all_reduce(tf.distribute.ReduceOp.MEAN, used))
        gradients = [g if g is None else next(means) for g in gradients]
    apart = {id(variable) for variable in clipped_apart}  # Variables cannot be hashed.
    gradients, norm, finite = _bounded(gradients, [id(v) in apart for v in variables], clip_norm)
    if replicas > 1:
        # Keras sums the gradients that the replicas apply, and each applies the average.
        gradients = [g if g is None else g / replicas for g in gradients]
    optimizer.apply(gradients, variables)
    metrics = {
        **result.metrics,
        "loss": result.loss,
        "gradient_norm": norm,
        "skipped_steps": 1.0 - tf.cast(finite, tf.float32),
    }
    return result._replace(metrics=metrics)


def mean_result(results: Sequence[StepResult]) -> StepResult:
    """Means of loss and metrics over several gradient steps, with the last step's feedback.

    Args:
      results: of `minimize`, all with the same metrics.
    """
    metrics = {
        name: tf.reduce_mean([result.metrics[name] for result in results])
        for name in results[0].metrics
    }
    loss = tf.reduce_mean([result.loss for result in results])
    return StepResult(loss, metrics, results[-1].feedback)


def _bounded(
    gradients: Gradients, apart: Sequence[bool], clip_norm: float | None
) -> tuple[Gradients, tf.Tensor, tf.Tensor]:
    """Scales gradients so that their global norm is at most `clip_norm`.

    If any is not finite (after a NaN reward, say) all become 0: one bad batch must not ruin the
    weights.

    Args:
      gradients: one per variable.
      apart: which of them are scaled by a separate norm.
      clip_norm: None: finite gradients are not scaled.

    Returns:
      (gradients, global norm <float32>[] before scaling, without those apart, whether all are
      finite <bool>[]).
    """
    norms = {}
    for group in (False, True):
        members = [
            g for g, its in zip(gradients, apart, strict=True) if its == group and g is not None
        ]
        norms[group] = tf.linalg.global_norm(members) if members else tf.constant(0.0)
    finite = tf.reduce_all(tf.math.is_finite(list(norms.values())))
    scales = {
        group: tf.where(finite, clip_norm / tf.maximum(norm, clip_norm) if clip_norm else 1.0, 0.0)
        for group, norm in norms.items()
    }
    # A plain product would keep NaN.
    bounded = [
        g if g is None else tf.math.multiply_no_nan(g, scales[group])
        for g, group in zip(gradients, apart, strict=True)
    ]
    return bounded, norms[False], finite
