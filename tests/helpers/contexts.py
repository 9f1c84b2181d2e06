"""What algorithms are created with, without a job."""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box, Discrete

from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.distributions.spaces import get_parametric_distribution_for_action_space
from seed_rl.common.inference import env_specs
from seed_rl.common.learner.algorithm import AlgorithmContext
from seed_rl.common.types import Spaces

VECTOR, THREE = Box(-1.0, 1.0, (3,), np.float32), Discrete(3)


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
    return AlgorithmContext(
        RunConfig(**run),
        config or LearnerConfig(),
        Spaces(observations, actions),
        env_specs.specs(observations, actions),
        distribution or get_parametric_distribution_for_action_space(actions),
        create_network,
    )
