"""The optimizer that the options ask for (TensorFlow is imported only to make it)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from seed_rl.common.config import option

ADAM = "adam"
RMSPROP = "rmsprop"


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """Optimizer: learning rate and gradients."""

    optimizer: str = option(
        ADAM, "Rule by which weights follow gradients.", choices=(RMSPROP, ADAM)
    )
    learning_rate: float = option(5e-4, "Learning rate at the start.", minimum=0.0)
    learning_rate_decay: bool = option(
        True, "Whether the learning rate falls linearly to 0 at total_environment_frames."
    )
    optimizer_epsilon: float = option(
        1e-5,
        "Keeps tiny gradients from becoming large steps. Adam adds it to the root mean square of "
        "a gradient, RMSProp to its square.",
        minimum=0.0,
    )
    rmsprop_decay: float = option(
        0.99, "RMSProp: decay of the mean squared gradient.", minimum=0.0, maximum=1.0
    )
    rmsprop_momentum: float = option(0.0, "RMSProp: momentum.", minimum=0.0, maximum=1.0)
    adam_beta1: float = option(0.9, "Adam: decay of the mean gradient.", minimum=0.0, maximum=1.0)
    adam_beta2: float = option(
        0.999, "Adam: decay of the mean squared gradient.", minimum=0.0, maximum=1.0
    )
    clip_norm: float | None = option(
        1.0, "Largest global norm of gradients. Not given: no clipping.", minimum=0.0
    )


def create_optimizer(
    config: OptimizerConfig, final_iteration: int
) -> tuple[Any, Callable[[int], float]]:
    """Makes a Keras optimizer; gradients are clipped by the learner, not by it.

    Args:
      config: options.
      final_iteration: training step at which a falling learning rate reaches 0.

    Returns:
      (optimizer, function from training step to learning rate).
    """
    import tensorflow as tf

    learning_rate: Any = config.learning_rate
    if config.learning_rate_decay:
        learning_rate = tf.keras.optimizers.schedules.PolynomialDecay(
            config.learning_rate, max(final_iteration, 1), end_learning_rate=0.0
        )
    optimizer: Any
    if config.optimizer == ADAM:
        optimizer = tf.keras.optimizers.Adam(
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
