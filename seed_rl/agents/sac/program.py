"""Main program of SAC learners and actors, for any environment."""

from __future__ import annotations

from typing import Any

from seed_rl.agents.sac.config import (
    SACConfig,
    SACNetworkConfig,
    check_quantiles,
    refuse_unused_target,
    validate,
)
from seed_rl.common.acting.program import AgentProgram
from seed_rl.common.config import options
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.distribution_config import ContinuousDistributionConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.network_config import ObservationConfig
from seed_rl.common.config.presets import Preset
from seed_rl.common.config.replay_config import HindsightConfig, ReplayConfig
from seed_rl.common.config.run_config import RunConfig

PRESET = Preset(
    "sac",
    dict(
        batch_size=256,
        unroll_length=1,
        learning_rate=3e-4,
        learning_rate_decay=False,
        optimizer_epsilon=1e-8,
        # With a common norm, the critics' gradients would determine the scale of the actor's.
        clip_norm=None,
        replay_buffer_size=1_000_000,
        replay_buffer_min_size=10_000,
        replay_ratio=256.0,
        replay_ratio_slack=4096,
        priority_exponent=0.0,
        action_gaussian_std_fn="safe_exp",
        # Single transitions of floating-point numbers hardly compress.
        replay_compression_level=0,
    ),
)
"""The paper's, for transitions: one update of 256 transitions per agent step."""


def create_agent(
    action_space: Any, env_observation_space: Any, parametric_action_distribution: Any
) -> Any:
    """Creates the network that the flags configure."""
    del action_space
    from seed_rl.agents.sac import networks  # TensorFlow: in the learner only.
    from seed_rl.common.normalization import normalizer

    config = options.from_flags(SACNetworkConfig)
    network = networks.create_network(env_observation_space, parametric_action_distribution, config)
    return normalizer.normalized(network, options.from_flags(ObservationConfig))


def _check() -> None:
    configs = (RunConfig, LearnerConfig, ReplayConfig, HindsightConfig)
    learners = options.from_flags(DeviceConfig).learners
    validate(*map(options.from_flags, configs), learners=learners)
    options.from_flags(ContinuousDistributionConfig)
    refuse_unused_target(options.from_flags(SACConfig))
    quantiles = options.flag_dictionary().get("n_quantiles", 0)  # Not for a network of one's own.
    check_quantiles(options.from_flags(SACConfig), quantiles)
    if quantiles == 1:
        why = "with --n_quantiles=1 there are none to drop"
        options.refuse_unused(("dropped_quantiles_per_critic",), why)


PROGRAM = AgentProgram(
    "sac",
    "seed_rl.agents.sac.algorithm",
    (SACConfig, HindsightConfig, ReplayConfig, ContinuousDistributionConfig),
    create_agent,
    (SACNetworkConfig, ObservationConfig),
    (PRESET,),
    _check,
)

main = PROGRAM.main
