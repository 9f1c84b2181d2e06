"""Facade: names of the original, from `acting`."""

from seed_rl.common.acting.batched_env import BatchedEnvironment
from seed_rl.common.acting.env_wrappers import (
    DiscretizeEnvWrapper,
    UniformBoundActionSpaceWrapper,
)
from seed_rl.compat.observations import flatten_and_concatenate_obs, spec_to_box

__all__ = [
    "BatchedEnvironment",
    "DiscretizeEnvWrapper",
    "UniformBoundActionSpaceWrapper",
    "flatten_and_concatenate_obs",
    "spec_to_box",
]
