"""Options of continuous action distributions."""

from __future__ import annotations

import dataclasses

from seed_rl.common.config.options import Checked, option
from seed_rl.common.errors import UserError

STD_FNS = ("safe_exp", "softplus")
POSTPROCESSORS = ("Tanh", "ClippedIdentity")


@dataclasses.dataclass(frozen=True)
class ContinuousDistributionConfig(Checked):
    """Continuous actions."""

    action_min_gaussian_std: float = option(
        0.001, "Minimum standard deviation of continuous actions.", minimum=0.0, network=True
    )
    action_gaussian_std_fn: str = option(
        "softplus",
        "Function that maps the network's output to the standard deviation of continuous actions.",
        choices=STD_FNS,
        network=True,
    )
    action_std_for_zero_param: float = option(
        1.0, "Standard deviation for a network output of 0.", minimum=0.0, network=True
    )
    action_postprocessor: str = option(
        "Tanh",
        "Function that maps Gaussian samples to [-1, 1].",
        choices=POSTPROCESSORS,
        network=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.action_std_for_zero_param <= self.action_min_gaussian_std:
            raise UserError(
                f"--action_std_for_zero_param={self.action_std_for_zero_param:g} must be above "
                f"--action_min_gaussian_std={self.action_min_gaussian_std:g}."
            )
