"""Main program of V-trace learners and actors, for any environment."""

from __future__ import annotations

from typing import Any

from seed_rl.agents.vtrace.config import VTraceConfig, VTraceReplayConfig
from seed_rl.common.acting.program import AgentProgram
from seed_rl.common.config import options
from seed_rl.common.config.distribution_config import ContinuousDistributionConfig
from seed_rl.common.config.network_config import (
    ConvNetworkConfig,
    MLPNetworkConfig,
    ObservationConfig,
)


def create_agent(
    action_space: Any, env_observation_space: Any, parametric_action_distribution: Any
) -> Any:
    """Creates the network that the flags configure."""
    del action_space
    from seed_rl.common.networks import network_factory, space_encoder  # TensorFlow: learner only.
    from seed_rl.common.normalization import normalizer

    space_encoder.refuse_unused_flags(env_observation_space)
    network = network_factory.create_network(
        env_observation_space,
        parametric_action_distribution,
        options.from_flags(ConvNetworkConfig),
        options.from_flags(MLPNetworkConfig),
    )
    return normalizer.normalized(network, options.from_flags(ObservationConfig))


PROGRAM = AgentProgram(
    "vtrace",
    "seed_rl.agents.vtrace.algorithm",
    (VTraceConfig, VTraceReplayConfig, ContinuousDistributionConfig),
    create_agent,
    (ObservationConfig, MLPNetworkConfig, ConvNetworkConfig),
)
"""Without a preset of its own."""

main = PROGRAM.main
