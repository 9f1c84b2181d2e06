"""The training step: epochs of gradient steps on minibatches of a batch of unrolls.

A training step of a small network takes hundreds of gradient steps of about a millisecond. They run
in a loop within the graph, which holds the gradient step once: hundreds of copies would take
minutes to trace. Rows are shuffled by their indices, and each minibatch gathers its own.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from seed_rl.agents.policy_gradient.config import (
    REPEAT,
    SHUFFLE,
    SPLIT_WITH_ADVANTAGE_RECOMPUTATION,
    MinibatchSettings,
)
from seed_rl.agents.policy_gradient.modules.generalized_onpolicy_loss import (
    GeneralizedOnPolicyLoss,
)
from seed_rl.agents.policy_gradient.modules.logging_module import LoggingTape
from seed_rl.common import random_numbers
from seed_rl.common.errors import UserError
from seed_rl.common.learner.algorithm import Minimize, StepResult
from seed_rl.common.learner.training import mean_result
from seed_rl.common.networks import row_ops
from seed_rl.common.networks.recurrent_network import AgentState
from seed_rl.common.normalization import replicated
from seed_rl.common.types import Unroll

Arguments = tuple[Any, ...]
"""Arguments of the loss: the first a nest of [batch, ...], the others of [time, batch, ...]."""


def train(
    loss: GeneralizedOnPolicyLoss,
    batch: Unroll,
    minimize: Minimize,
    settings: MinibatchSettings,
    rewards: tf.Tensor | None = None,
) -> StepResult:
    """One training step on one replica.

    Args:
      loss: of a batch of unrolls.
      batch: T + 1 steps of B unrolls.
      minimize: takes a gradient step.
      settings: minibatches and epochs.
      rewards: <float32>[time + 1, batch] to learn from; None: the environment's.

    Returns:
      Means of loss and metrics over all gradient steps.

    Raises:
      UserError: the batch cannot be divided, or should be split but holds recurrent states.
    """
    num_steps, num_unrolls = batch.env_outputs.reward.shape
    settings.minibatch_size(num_unrolls, num_steps - 1)
    if not settings.splits:
        arguments = (*batch, None, None, None, rewards)
        return run_epochs(loss, arguments, minimize, settings)
    batch = with_stacks(loss.network, batch)
    if settings.batch_mode == SPLIT_WITH_ADVANTAGE_RECOMPUTATION:
        single = dataclasses.replace(settings, epochs_per_step=1)

        def epoch(_: tf.Tensor) -> StepResult:
            split = split_into_transitions(loss, batch, rewards)
            return run_epochs(loss, split, minimize, single)

        return mean_of_steps(epoch, settings.epochs_per_step)
    split = split_into_transitions(loss, batch, rewards)
    return run_epochs(loss, split, minimize, settings)


def with_stacks(network: Any, batch: Unroll) -> Unroll:
    """`batch` with frames already stacked, if the network can do that in advance."""
    if not tf.nest.flatten(batch.agent_state) or not hasattr(network, "stacked"):
        return batch
    env_outputs, state = network.stacked(batch.env_outputs, batch.agent_state)
    return batch._replace(env_outputs=env_outputs, agent_state=state)


def run_epochs(
    loss: Callable[..., tf.Tensor],
    arguments: Arguments,
    minimize: Minimize,
    settings: MinibatchSettings,
) -> StepResult:
    """Epochs of gradient steps on minibatches of the rows of `arguments`.

    Args:
      loss: called with the arguments of a minibatch.
      arguments: of unrolls or of transitions; None is passed on.
      minimize: takes a gradient step.
      settings: minibatches and epochs; rows are in order in `repeat` mode, shuffled in others.

    Returns:
      Means of loss and metrics over all gradient steps.
    """
    num_rows = tf.nest.flatten(arguments[1:])[0].shape[1]
    size = num_rows // settings.batches_per_step
    rows = tf.range(num_rows)
    orders = [
        rows if settings.batch_mode == REPEAT else random_numbers.shuffle(rows)
        for _ in range(settings.epochs_per_step)
    ]
    minibatches = tf.reshape(tf.stack(orders), [settings.gradient_steps, size])

    def step(index: tf.Tensor) -> StepResult:
        minibatch = _take(arguments, minibatches[index])
        return minimize(lambda: _logged_loss(loss, minibatch))

    return mean_of_steps(step, settings.gradient_steps)


def memory(network: Any) -> Any:
    """The initial state that `with_stacks` will leave, as far as is known without a batch."""
    state = network.initial_state(1)
    if isinstance(state, AgentState):
        return state.core_state
    return () if hasattr(network, "stacked") else state


def refuse_memory(state: Any) -> None:
    """Raises a `UserError` if the network has a recurrent state."""
    if tf.nest.flatten(state):
        raise UserError(
            "The network has a recurrent state, so its unrolls cannot be split into transitions: "
            f"--batch_mode={REPEAT} and --batch_mode={SHUFFLE} keep them whole."
        )


def split_into_transitions(
    loss: GeneralizedOnPolicyLoss, batch: Unroll, rewards: tf.Tensor | None = None
) -> Arguments:
    """Computes advantages, and cuts T + 1 steps of B unrolls into T * B transitions.

    The arguments are those of `train`.

    Returns:
      Arguments of `loss`, nests of [1, time * batch, ...], the last ones being targets, advantages
      and mask.

    Raises:
      UserError: there is a recurrent state.
    """
    refuse_memory(batch.agent_state)
    targets, advantages = loss.compute_advantages(*batch, rewards=rewards)
    steps = tf.nest.map_structure(
        lambda t: t[:-1], (batch.prev_actions, batch.env_outputs, batch.agent_outputs)
    )
    per_step = (*steps, targets, advantages, loss.mask(batch.env_outputs))
    flat = tf.nest.map_structure(lambda t: tf.reshape(t, [1, -1, *t.shape[2:]]), per_step)
    return (batch.agent_state, *flat)


def mean_of_steps(step: Callable[[tf.Tensor], StepResult], count: int) -> StepResult:
    """Means of loss and metrics over `step(0)` to `step(count - 1)`, of indices <int32>[].

    They run in a loop within the graph, which then holds `step` once, where that is possible.
    """
    if not _can_loop():
        return mean_result([step(tf.constant(index)) for index in range(count)])
    names = list[str]()  # AutoGraph of old programs takes no annotation here.

    def numbers(index: tf.Tensor) -> tf.Tensor:
        result = step(index)
        names[:] = result.metrics
        return tf.stack([result.loss, *result.metrics.values()])

    context = replicated.several()
    if context is None:
        mean = _looped_mean(numbers, count)
    else:
        # The loop is around the replicas: they could not synchronize within loops of their own.
        together = functools.partial(_mean_over_replicas, count=count)
        mean = context.merge_call(together, args=(numbers,))
    loss, *metrics = tf.unstack(mean)
    return StepResult(loss, dict(zip(names, metrics, strict=True)))


def _mean_over_replicas(strategy: tf.distribute.Strategy, numbers: Any, count: int) -> tf.Tensor:
    """`_looped_mean` over the replicas of this process, each with its own `numbers`."""

    def together(index: tf.Tensor) -> tf.Tensor:
        parts = strategy.run(lambda own, index: own(index), args=(numbers, index))
        return tf.reduce_mean(strategy.experimental_local_results(parts), 0)

    return _looped_mean(together, count)


def _looped_mean(numbers: Callable[[tf.Tensor], tf.Tensor], count: int) -> tf.Tensor:
    """Mean of `numbers(0)` to `numbers(count - 1)`, each <float32>[n], in a loop of the graph."""
    # Traced before the loop, whose variables must have the shape of the result.
    traced = tf.function(numbers, autograph=False).get_concrete_function(
        tf.TensorSpec([], tf.int32)
    )
    _, total = tf.while_loop(
        lambda index, _: index < count,
        lambda index, total: (index + 1, total + traced(index)),
        (tf.constant(0), tf.zeros(traced.structured_outputs.shape)),
        parallel_iterations=1,  # Each step reads the weights that the previous one has written.
    )
    return total / count


def _take(arguments: Arguments, rows: tf.Tensor) -> Arguments:
    """The rows <int32>[n] of the batch dimensions of arguments of the loss."""
    state, *steps = arguments
    return (
        tf.nest.map_structure(lambda t: row_ops.gather(t, rows), state),
        *tf.nest.map_structure(
            lambda t: None if t is None else row_ops.gather(t, rows, axis=1), steps
        ),
    )


def _logged_loss(loss: Callable[..., tf.Tensor], arguments: Arguments) -> StepResult:
    """Calls a loss; what its parts log, averaged, are the metrics."""
    with LoggingTape(loss) as logs:
        value = loss(*arguments)
        metrics = {key: tf.reduce_mean(tf.cast(log, tf.float32)) for key, log in logs.items()}
    return StepResult(value, metrics)


def _can_loop() -> bool:
    """Whether steps can be iterations of a loop: not on several cores of a TPU."""
    strategy = tf.distribute.get_strategy()
    return strategy.num_replicas_in_sync == 1 or not isinstance(strategy, tf.distribute.TPUStrategy)
