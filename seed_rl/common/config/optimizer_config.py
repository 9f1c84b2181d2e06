"""Options of the optimizer."""

from __future__ import annotations

import dataclasses

from seed_rl.common.config.options import Checked, option

ADAM = "adam"
RMSPROP = "rmsprop"


@dataclasses.dataclass(frozen=True)
class OptimizerConfig(Checked):
    """Optimizer: learning rate and gradients."""

    optimizer: str = option(ADAM, "Optimizer.", choices=(RMSPROP, ADAM))
    learning_rate: float = option(5e-4, "Initial learning rate.", minimum=0.0)
    learning_rate_decay: bool = option(
        True, "Whether the learning rate decays linearly to 0 at total_environment_frames."
    )
    optimizer_epsilon: float = option(
        1e-5,
        "Epsilon of the optimizer: Adam adds it to the root mean square of the gradient, RMSProp "
        "to the mean square.",
        minimum=0.0,
    )
    rmsprop_decay: float = option(
        0.99, "RMSProp: decay rate of the mean squared gradient.", minimum=0.0, maximum=1.0
    )
    rmsprop_momentum: float = option(0.0, "RMSProp: momentum.", minimum=0.0, maximum=1.0)
    adam_beta1: float = option(
        0.9, "Adam: decay rate of the mean gradient.", minimum=0.0, maximum=1.0
    )
    adam_beta2: float = option(
        0.999, "Adam: decay rate of the mean squared gradient.", minimum=0.0, maximum=1.0
    )
    clip_norm: float | None = option(
        1.0, "Gradients are scaled down to at most this global norm; 0: no clipping.", minimum=0.0
    )
