"""Further parts for gin configs of `ppo_main`, under the names of existing configs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gin
import tensorflow as tf

from seed_rl.agents.policy_gradient import gin_config
from seed_rl.common.errors import UserError
from seed_rl.common.learner import optimizer


@gin.configurable
def orthogonal_gain_sqrt2() -> tf.keras.initializers.Initializer:
    """Orthogonal initial weights, whose singular values are all sqrt(2)."""
    return tf.keras.initializers.Orthogonal(gain=math.sqrt(2.0))


@gin.configurable
def orthogonal_gain_0dot01() -> tf.keras.initializers.Initializer:
    """Orthogonal initial weights, whose singular values are all 0.01."""
    return tf.keras.initializers.Orthogonal(gain=0.01)


@gin.configurable
def create_optimizer(
    final_iteration: int, optimizer_fn: Callable[[], tf.keras.optimizers.Optimizer] | None = None
) -> tuple[Any, Callable[[Any], Any]]:
    """Creates the optimizer; the learner clips the gradients.

    Args:
      final_iteration: gradient step at which a learning rate of `OptimizerConfig` reaches 0.
      optimizer_fn: creates the optimizer, such as `@tf.keras.optimizers.Adam`, whose learning rate
        (a number or a schedule) is then bound too; None: `OptimizerConfig` describes it.

    Returns:
      (optimizer, function from gradient step to learning rate).

    Raises:
      UserError: both describe the optimizer.
    """
    if optimizer_fn is None:
        return optimizer.create_optimizer(final_iteration, gin_config.optimizer_config())
    both = sorted(gin_config.bindings("OptimizerConfig").keys() - {"clip_norm"})
    if both:
        raise UserError(
            "Gin config: the optimizer is described twice, by create_optimizer.optimizer_fn and by "
            f"{', '.join('OptimizerConfig.' + name for name in both)}. Remove one or the other; "
            "only OptimizerConfig.clip_norm goes with both."
        )
    created = optimizer_fn()
    # `learning_rate` of an optimizer with a schedule is its present value.
    schedule = created.get_config()["learning_rate"]
    if isinstance(schedule, dict):
        schedule = tf.keras.optimizers.schedules.deserialize(schedule)
    return created, schedule if callable(schedule) else lambda step: schedule
