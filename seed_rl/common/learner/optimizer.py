"""The default optimizer. TensorFlow is imported when it is created, not when programs name it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seed_rl.common.config.optimizer_config import ADAM, OptimizerConfig
from seed_rl.common.config.options import from_flags, refuse_unused

_OF_ADAM = "adam_beta1", "adam_beta2"
_OF_RMSPROP = "rmsprop_decay", "rmsprop_momentum"


def create_optimizer(
    final_iteration: int, config: OptimizerConfig | None = None
) -> tuple[Any, Callable[[int], float]]:
    """Creates a Keras optimizer; the learner clips the gradients.

    Args:
      final_iteration: gradient step at which a decaying learning rate reaches 0.
      config: options; None: those of the flags.

    Returns:
      (optimizer, function from gradient step to learning rate).

    Raises:
      UserError: flags of another optimizer were set.
    """
    import tensorflow as tf

    config = config or from_flags(OptimizerConfig)
    of_other = _OF_RMSPROP if config.optimizer == ADAM else _OF_ADAM
    refuse_unused(of_other, f"--optimizer={config.optimizer}")
    learning_rate: Any = config.learning_rate
    if config.learning_rate_decay:
        learning_rate = tf.keras.optimizers.schedules.PolynomialDecay(
            config.learning_rate, max(final_iteration, 1), end_learning_rate=0.0
        )
    optimizer: Any
    if config.optimizer == ADAM:
        from seed_rl.common.learner.fused_adam import FusedAdam

        optimizer = FusedAdam(
            learning_rate,
            beta_1=config.adam_beta1,
            beta_2=config.adam_beta2,
            epsilon=config.optimizer_epsilon,
        )
    else:
        optimizer = tf.keras.optimizers.RMSprop(
            learning_rate,
            rho=config.rmsprop_decay,
            momentum=config.rmsprop_momentum,
            epsilon=config.optimizer_epsilon,
        )

    def learning_rate_fn(step: int) -> float:
        return float(learning_rate(step) if callable(learning_rate) else learning_rate)

    return optimizer, learning_rate_fn
