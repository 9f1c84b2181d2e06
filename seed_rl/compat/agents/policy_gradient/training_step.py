"""The training step under the names and with the arguments of existing programs.

New code uses `minibatches.train`.
"""

from __future__ import annotations

import functools

import tensorflow as tf

from seed_rl.agents.policy_gradient.config import MinibatchSettings
from seed_rl.agents.policy_gradient.modules import minibatches
from seed_rl.agents.policy_gradient.modules.generalized_onpolicy_loss import (
    GeneralizedOnPolicyLoss,
)
from seed_rl.common.learner import training, variables
from seed_rl.common.learner.algorithm import Minimize
from seed_rl.common.types import EnvOutput, Unroll
from seed_rl.compat.progress_logger import ProgressLogger, Session

__all__ = ["compute_advantages_and_split", "ppo_training_step", "single_epoch"]


def ppo_training_step(
    epochs_per_step: int,
    loss_fn: GeneralizedOnPolicyLoss,
    args: minibatches.Arguments,
    batch_mode: str,
    training_strategy: tf.distribute.Strategy,
    virtual_batch_size: int | None,
    unroll_length: int | None,
    batches_per_step: int,
    clip_norm: float | None,
    optimizer: tf.keras.optimizers.Optimizer,
    logger: ProgressLogger,
) -> tuple[tf.Tensor, Session]:
    """One training step on the batch of one replica.

    Call it within `training_strategy.run`, or with the default strategy.

    Args:
      epochs_per_step: passes over the batch.
      loss_fn: of a batch of unrolls.
      args: (agent_state, prev_actions, env_outputs, agent_outputs) of T + 1 steps.
      batch_mode: see `MinibatchSettings`.
      training_strategy: not used; this runs on its replicas.
      virtual_batch_size: not used; the sizes are those of `args`.
      unroll_length: not used.
      batches_per_step: minibatches per epoch.
      clip_norm: maximum global norm of the gradients; None: no clipping.
      optimizer: any Keras optimizer; for several replicas, built.
      logger: creates the session.

    Returns:
      (loss <float32>[], session with the logged values); means over the gradient steps.

    Raises:
      UserError: see `minibatches.train`.
    """
    del training_strategy, virtual_batch_size, unroll_length
    settings = MinibatchSettings(batch_mode, epochs_per_step, batches_per_step)
    minimize = _minimize(loss_fn, clip_norm, optimizer)
    result = minibatches.train(loss_fn, _unroll(args), minimize, settings)
    return result.loss, logger.log_session_from_dict(result.metrics)


def compute_advantages_and_split(
    loss_fn: GeneralizedOnPolicyLoss, input_args: minibatches.Arguments
) -> minibatches.Arguments:
    """Advantages of unrolls, which become transitions; see `minibatches.split_into_transitions`.

    Args:
      loss_fn: computes the advantages.
      input_args: (agent_state, prev_actions, env_outputs, agent_outputs) of T + 1 steps.

    Returns:
      Arguments of `loss_fn`, of [1, time * batch, ...], for `single_epoch`.

    Raises:
      UserError: there is a recurrent state.
    """
    return minibatches.split_into_transitions(loss_fn, _unroll(input_args))


def single_epoch(
    loss_fn: GeneralizedOnPolicyLoss,
    args: minibatches.Arguments,
    batch_mode: str,
    training_strategy: tf.distribute.Strategy,
    virtual_batch_size: int | None,
    unroll_length: int | None,
    batches_per_step: int,
    clip_norm: float | None,
    optimizer: tf.keras.optimizers.Optimizer,
    logger: ProgressLogger,
) -> tuple[tf.Tensor, Session]:
    """One pass over a batch; arguments and results are those of `ppo_training_step`.

    `args` may also be what `compute_advantages_and_split` returns. In `repeat` mode, rows are taken
    in order, else shuffled.

    Raises:
      UserError: the rows of `args` cannot be divided into `batches_per_step` minibatches.
    """
    del training_strategy, virtual_batch_size, unroll_length
    settings = MinibatchSettings(batch_mode, batches_per_step=batches_per_step)
    num_rows = tf.nest.flatten(args[1:])[0].shape[1]
    settings.minibatch_size(num_rows, 1)
    minimize = _minimize(loss_fn, clip_norm, optimizer)
    result = minibatches.run_epochs(loss_fn, args, minimize, settings)
    return result.loss, logger.log_session_from_dict(result.metrics)


def _unroll(args: minibatches.Arguments) -> Unroll:
    agent_state, prev_actions, env_outputs, agent_outputs = args
    return Unroll(agent_state, prev_actions, EnvOutput(*env_outputs), agent_outputs)


def _minimize(
    loss_fn: GeneralizedOnPolicyLoss,
    clip_norm: float | None,
    optimizer: tf.keras.optimizers.Optimizer,
) -> Minimize:
    trained = variables.trainable_variables(loss_fn)
    if not optimizer.built:
        with tf.init_scope():  # The loop over the gradient steps cannot create variables.
            optimizer.build(trained)
    return functools.partial(
        training.minimize,
        optimizer=optimizer,
        variables=trained,
        clip_norm=clip_norm,
        clipped_apart=loss_fn.multipliers(),
    )
