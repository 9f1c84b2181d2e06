"""Checks the spaces of an environment (no TensorFlow here)."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from seed_rl.check_env.findings import Findings, Unusable
from seed_rl.common.acting import env_wrappers
from seed_rl.common.acting import spaces as space_lib
from seed_rl.common.errors import UserError


def check_spaces(
    observations: spaces.Space[Any], actions: spaces.Space[Any], findings: Findings
) -> None:
    """Whether agents can handle the spaces, and what they cost.

    Raises:
      Unusable: they cannot.
    """
    for space, name in ((observations, "observation"), (actions, "action")):
        try:
            space_lib.specs(space, name)
        except UserError as error:
            findings.must("space", str(error), "Learner and actors refuse to start.", "Wrap it.")
            raise Unusable from None
    for leaf in space_lib.leaf_spaces(actions):
        if isinstance(leaf, spaces.Box) and not env_wrappers.is_bounded(leaf):
            findings.must(
                "actions",
                f"The actions {leaf} have no bounds, or are whole numbers.",
                "Agents do not support them.",
                "Declare the smallest and largest useful values, as a Box of floats; use "
                "MultiDiscrete for whole numbers.",
            )
    for leaf in space_lib.leaf_spaces(observations):
        _check_image(leaf, findings)


def _check_image(leaf: spaces.Space[Any], findings: Findings) -> None:
    if not isinstance(leaf, spaces.Box) or len(leaf.shape) != 3:
        return
    if leaf.dtype != np.uint8 and max(leaf.shape) >= space_lib.SMALLEST_IMAGE:
        size = 4 * int(np.prod(leaf.shape))
        findings.should(
            "float_image",
            f"Images are {leaf.dtype.name}{list(leaf.shape)}.",
            f"{size:,} bytes per step on the wire and in memory, four times those of bytes.",
            "Return uint8 from 0 to 255 (in the space, too); networks scale it to [0, 1] "
            "themselves.",
        )
    if (
        leaf.dtype != np.uint8
        and env_wrappers.has_channels_first(leaf.shape)
        and not space_lib.is_image(leaf)
    ):
        findings.should(
            "channels",
            f"Observations {list(leaf.shape)} seem to be images with their channels first.",
            "They are flattened for dense layers; convolutions take [height, width, channels].",
            "Return np.moveaxis(image, 0, -1). (For uint8, this is automatic.)",
        )
