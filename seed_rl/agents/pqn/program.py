"""Main program of PQN learners and actors, for any environment."""

from __future__ import annotations

from typing import Any

from seed_rl.agents.policy_gradient.config import (
    SPLIT,
    MinibatchSettings,
    StepConfig,
    settled_sizes,
)
from seed_rl.agents.pqn.config import NormConfig, PQNConfig
from seed_rl.common.acting.program import AgentProgram
from seed_rl.common.config.network_config import (
    ConvNetworkConfig,
    MLPNetworkConfig,
    ObservationConfig,
)
from seed_rl.common.config.options import from_flags
from seed_rl.common.config.presets import Preset

PRESET = Preset(
    "pqn",
    dict(
        # The paper has 4,096 transitions of 128 environments, likewise in minibatches of 128.
        step_size_transitions=1024,
        batch_size_transitions=128,
        batch_mode=SPLIT,
        epochs_per_step=2,
        learning_rate=2.5e-4,
        clip_norm=10.0,
    ),
)
"""The paper's settings, with smaller training steps: for some 16 environments on a few cores."""


def create_agent(action_space: Any, observation_space: Any, distribution: Any) -> Any:
    """Creates the network that the flags configure."""
    del action_space
    from seed_rl.agents.pqn import networks  # TensorFlow: in the learner only.
    from seed_rl.common.networks import network_factory, space_encoder
    from seed_rl.common.normalization import normalizer

    space_encoder.refuse_unused_flags(observation_space)
    network = network_factory.create_network(
        observation_space,
        distribution,
        from_flags(ConvNetworkConfig),
        from_flags(MLPNetworkConfig),
        from_flags(NormConfig).layer_norm,
        networks.QNetwork,
    )
    return normalizer.normalized(network, from_flags(ObservationConfig))


PROGRAM = AgentProgram(
    "pqn",
    "seed_rl.agents.pqn.algorithm",
    (PQNConfig, StepConfig, MinibatchSettings),
    create_agent,
    (NormConfig, ObservationConfig, MLPNetworkConfig, ConvNetworkConfig),
    (PRESET,),
    settled_sizes,
)

main = PROGRAM.main
