"""Environments that programs in any language step, known by their spaces (no TensorFlow here)."""

from __future__ import annotations

import dataclasses
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from seed_rl.common.acting import spaces
from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.config.options import Checked, option
from seed_rl.common.errors import UserError


@dataclasses.dataclass(frozen=True)
class ExternalConfig(Checked):
    """External environments: what their clients send and take (docs/clients.md).

    Raises:
      UserError: on construction; a space is missing, cannot be read, or networks do not take it.
    """

    observations: str = option(
        "",
        'Type and shape of an observation: "float32[4]", "uint8[84, 84, 3]" for images, or several '
        'by name, "{action_mask: uint8[5], board: float32[8, 8]}".',
    )
    actions: str = option(
        "",
        'Actions: "5 choices from 0", "[3, 2] choices from [0, 0]", "float32[6] from -1 to 1", or '
        "several by name.",
    )
    num_action_repeats: int = option(
        1, "Frames that clients count as one step.", minimum=1, shared=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for leaf in spaces.leaf_spaces(self.space("observations", "float32[4]")):
            if not isinstance(leaf, Box) or leaf.dtype not in (np.uint8, np.float32):
                raise UserError(
                    f"--observations: {spaces.describe(leaf)} must be float32 (vectors, grids) or "
                    "uint8 (images, masks); clients convert other types, choices to one-hot "
                    "vectors."
                )
        for leaf in spaces.leaf_spaces(self.space("actions", "2 choices from 0")):
            if isinstance(leaf, Box) and not ((leaf.low == -1).all() and (leaf.high == 1).all()):
                raise UserError(
                    f"--actions: {spaces.describe(leaf)} must be from -1 to 1; clients scale them."
                )

    def space(self, flag: str, example: str = "") -> gymnasium.Space[Any]:
        """The space that an option describes."""
        text = getattr(self, flag)
        if not text:
            raise UserError(
                f"--{flag} is missing; it describes the clients' environments: "
                f'--{flag}="{example}".'
            )
        try:
            return spaces.parse(text)
        except ValueError as error:
            raise UserError(f"--{flag}: {error}.") from None


class ExternalEnvironment(gymnasium.Env[Any, Any]):
    """The spaces of environments that others step."""

    def __init__(self, observation_space: Any, action_space: Any):
        self.observation_space, self.action_space = observation_space, action_space

    def _elsewhere(self) -> NoReturn:
        raise UserError(
            "External environments are stepped by their clients, not here. To measure an agent, "
            "serve it to them: seed-rl serve RUN --episodes=100 --num_envs=N (docs/clients.md)."
        )

    def reset(self, **_: Any) -> NoReturn:
        """Raises `UserError`."""
        self._elsewhere()

    def step(self, action: Any) -> NoReturn:
        """Raises `UserError`."""
        self._elsewhere()


def create_environment(task: int, config: ExternalConfig) -> gymnasium.Env[Any, Any]:
    """An environment that has the spaces of `config`, and cannot be stepped."""
    del task
    return ExternalEnvironment(config.space("observations"), config.space("actions"))


FAMILY = EnvironmentFamily(ExternalConfig, create_environment)
