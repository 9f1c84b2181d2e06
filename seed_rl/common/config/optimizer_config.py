"""Options of the optimizer (no TensorFlow here)."""

from __future__ import annotations

import dataclasses

from seed_rl.common.config.options import option

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
