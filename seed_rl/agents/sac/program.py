"""Main program of SAC learners and actors, for any environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from seed_rl.agents.sac.config import SACConfig, SACNetworkConfig
from seed_rl.common.acting import program
from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.config import options
from seed_rl.common.config.distribution_config import ContinuousDistributionConfig
from seed_rl.common.config.presets import Preset
from seed_rl.common.config.replay_config import HindsightConfig, ReplayConfig

PRESET = Preset(
    "sac",
    dict(
        batch_size=256,
        unroll_length=1,
        learning_rate=3e-4,
        learning_rate_decay=False,
        optimizer_epsilon=1e-8,
        # A common norm would let the critics' gradients scale those of the actor.
        clip_norm=None,
        replay_buffer_size=1_000_000,
        replay_buffer_min_size=10_000,
        replay_ratio=256.0,
        replay_ratio_slack=4096,
        priority_exponent=0.0,
        importance_sampling_exponent=0.0,
        # Single transitions of floating-point numbers hardly compress.
        replay_compression_level=0,
    ),
)
"""The paper's, for transitions: one update of 256 transitions per agent step."""


def create_agent(
    action_space: Any, env_observation_space: Any, parametric_action_distribution: Any
) -> Any:
    """Creates the network that the flags of `SACNetworkConfig` configure."""
    del action_space
    from seed_rl.agents.sac import networks  # TensorFlow: in the learner only.

    config = options.from_flags(SACNetworkConfig)
    return networks.create_network(env_observation_space, parametric_action_distribution, config)


def main(
    family: EnvironmentFamily,
    create_agent: Callable[[Any, Any, Any], Any] = create_agent,
    create_optimizer: Callable[[int], Any] | None = None,
    algorithm: Callable[[], type] | None = None,
    agent_configs: tuple[type, ...] = (SACNetworkConfig,),
    presets: Sequence[Preset] = (),
    argv: Sequence[str] | None = None,
    **defaults: Any,
) -> None:
    """Parses flags and runs; does not return.

    Args:
      family: the environments.
      create_agent: `create_agent(action_space, observation_space, parametric_action_distribution)`
        returns the network. Called only in the learner, so it should import TensorFlow itself.
      create_optimizer: `create_optimizer(final_iteration)` returns (optimizer, learning_rate_fn);
        by default, the flags of `OptimizerConfig` configure one.
      algorithm: returns `SAC` or a subclass with the same constructor arguments. Called only in the
        learner, so it should import TensorFlow itself.
      agent_configs: the network's dataclasses of options.
      presets: defaults applied after `PRESET`, in order.
      argv: name of the program, then flags; None: the command line.
      **defaults: further defaults of this program, applied last.
    """

    def learn(env_config: Any) -> None:
        from seed_rl.agents.sac.algorithm import SAC, create_job

        create_job(
            family.create,
            create_agent,
            create_optimizer,
            env_config=env_config,
            algorithm=algorithm() if algorithm else SAC,
        ).execute()

    configs = (
        SACConfig,
        HindsightConfig,
        ReplayConfig,
        *agent_configs,
        ContinuousDistributionConfig,
    )
    presets = (PRESET, *presets)
    program.main(family, configs, learn, presets=presets, argv=argv, agent="sac", **defaults)
