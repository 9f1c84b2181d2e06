"""Main program of R2D2 learners and actors, for any environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from seed_rl.agents.r2d2.config import QNetworkConfig, R2D2Config
from seed_rl.common.acting import program
from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.config import options
from seed_rl.common.config.presets import Preset
from seed_rl.common.config.replay_config import ReplayConfig

PRESET = Preset(
    "r2d2",
    dict(
        batch_size=16,
        burn_in=10,
        discounting=0.99,
        replay_buffer_size=25_000,
        replay_buffer_min_size=1_000,
        replay_ratio=3.0,
        # Each update of the target network propagates values by n_steps. With few training steps
        # per hour, an update every 500 of them would delay learning by hours.
        update_target_every_n_step=100,
        learning_rate=3e-4,
        learning_rate_decay=False,
        optimizer_epsilon=1e-4,
        clip_norm=40.0,
    ),
)
"""Learns Pong on two cores. For the settings of the paper: `seed_rl/atari/r2d2_paper.flags`."""


def create_agent(env_output_specs: Any, num_actions: int) -> Any:
    """Creates the network that the flags of `QNetworkConfig` configure."""
    from seed_rl.agents.r2d2 import networks  # TensorFlow: in the learner only.
    from seed_rl.common.networks import space_encoder

    space_encoder.refuse_unused_flags(networks.space_of(env_output_specs.observation))
    config = options.from_flags(QNetworkConfig)
    return networks.create_network(env_output_specs, num_actions, config)


def main(
    family: EnvironmentFamily,
    create_agent: Callable[[Any, int], Any] = create_agent,
    create_optimizer: Callable[[int], Any] | None = None,
    algorithm: Callable[[], type] | None = None,
    agent_configs: tuple[type, ...] = (QNetworkConfig,),
    presets: Sequence[Preset] = (),
    argv: Sequence[str] | None = None,
    **defaults: Any,
) -> None:
    """Parses flags and runs; does not return.

    Args:
      family: the environments.
      create_agent: `create_agent(env_output_specs, num_actions)` returns the network. Called only
        in the learner, so it should import TensorFlow itself.
      create_optimizer: `create_optimizer(final_iteration)` returns (optimizer, learning_rate_fn);
        by default, the flags of `OptimizerConfig` configure one.
      algorithm: returns `R2D2` or a subclass with the same constructor arguments. Called only in
        the learner, so it should import TensorFlow itself.
      agent_configs: the network's dataclasses of options.
      presets: defaults applied after `PRESET`, in order.
      argv: name of the program, then flags; None: the command line.
      **defaults: further defaults of this program, applied last.
    """

    def learn(env_config: Any) -> None:
        from seed_rl.agents.r2d2.algorithm import R2D2, create_job

        create_job(
            family.create,
            create_agent,
            create_optimizer,
            env_config=env_config,
            algorithm=algorithm() if algorithm else R2D2,
        ).execute()

    configs = (R2D2Config, ReplayConfig, *agent_configs)
    presets = (PRESET, *presets)
    program.main(family, configs, learn, presets=presets, argv=argv, agent="r2d2", **defaults)
