"""Normalization of observations, for the networks of the MuJoCo programs."""

from __future__ import annotations

import dataclasses
from typing import Any

from seed_rl.common.config.options import Checked, option


@dataclasses.dataclass(frozen=True)
class ObservationConfig(Checked):
    """Network: its input."""

    normalize_observations: bool = option(
        False,
        "Whether observations are shifted and scaled to mean 0 and standard deviation 1, by the "
        "statistics of all those trained on, and clipped to [-5, 5].",
        network=True,
    )


def normalized(network: Any, config: ObservationConfig) -> Any:
    """`network`, or a network that passes it normalized observations if `config` says so."""
    if not config.normalize_observations:
        return network
    from seed_rl.common.normalization import normalizer  # Actors must not import TensorFlow.

    return normalizer.NormalizeObservationsWrapper(network, normalizer.Normalizer())
