"""Main program of R2D2 learners and actors, for any environment."""

from __future__ import annotations

from typing import Any

from seed_rl.agents.r2d2.config import QNetworkConfig, R2D2Config, validate
from seed_rl.common.acting.program import AgentProgram
from seed_rl.common.config import options
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.network_config import ObservationConfig
from seed_rl.common.config.presets import Preset
from seed_rl.common.config.replay_config import ReplayConfig
from seed_rl.common.config.run_config import RunConfig

PRESET = Preset(
    "r2d2",
    dict(
        # At a given replay ratio, smaller batches mean more training steps per frame.
        batch_size=4,
        burn_in=10,
        discounting=0.99,
        replay_buffer_size=25_000,
        replay_buffer_min_size=1_000,
        replay_ratio=4.0,
        # Every 32,000 frames of Atari. Each update of the target network propagates values by
        # n_steps, so rare ones delay learning.
        update_target_every_n_step=400,
        learning_rate=1e-4,
        learning_rate_decay=False,
        optimizer_epsilon=1e-4,
        clip_norm=40.0,
    ),
)
"""For two cores; docs/agents/r2d2.md has what it learned. The settings of the paper:
`seed_rl/atari/r2d2_paper.flags`."""


def create_agent(
    action_space: Any, env_observation_space: Any, parametric_action_distribution: Any
) -> Any:
    """Creates the network that the flags configure."""
    del parametric_action_distribution
    from seed_rl.agents.r2d2 import networks  # TensorFlow: in the learner only.
    from seed_rl.common.networks import space_encoder
    from seed_rl.common.normalization import normalizer

    space_encoder.refuse_unused_flags(env_observation_space)
    config = options.from_flags(QNetworkConfig)
    network = networks.create_network(env_observation_space, int(action_space.n), config)
    return normalizer.normalized(network, options.from_flags(ObservationConfig))


def _check() -> None:
    configs = (RunConfig, LearnerConfig, R2D2Config, ReplayConfig)
    learners = options.from_flags(DeviceConfig).learners
    validate(*map(options.from_flags, configs), learners=learners)


PROGRAM = AgentProgram(
    "r2d2",
    "seed_rl.agents.r2d2.algorithm",
    (R2D2Config, ReplayConfig),
    create_agent,
    (QNetworkConfig, ObservationConfig),
    (PRESET,),
    _check,
)

main = PROGRAM.main
