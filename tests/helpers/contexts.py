"""What algorithms are created with, without a job."""

from __future__ import annotations

import dataclasses

import numpy as np
from gymnasium.spaces import Box, Discrete

from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.distributions.base import ParametricDistribution
from seed_rl.common.learner.algorithm import AlgorithmContext
from seed_rl.common.types import Spaces

VECTOR, THREE = Box(-1.0, 1.0, (3,), np.float32), Discrete(3)


@dataclasses.dataclass(frozen=True)
class _Context(AlgorithmContext):
    given: ParametricDistribution | None = None

    @property
    def distribution(self):
        return self.given or super().distribution


def context(
    create_network,
    distribution=None,
    observations=VECTOR,
    actions=THREE,
    config=None,
    **run,
):
    """The context of environments with these spaces.

    Args:
      distribution: over actions; by default that of `actions`.
      **run: `num_envs` and other fields of `RunConfig`.
    """
    return _Context(
        RunConfig(**run),
        config or LearnerConfig(),
        Spaces(observations, actions),
        lambda *_: create_network(),
        given=distribution,
    )
