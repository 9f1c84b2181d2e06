"""V-trace on Google Research Football: the learner (--run_mode=learner) or an actor.

The defaults are those of the paper. For one workstation:
--flagfile=seed_rl/football/workstation.flags
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from seed_rl.agents.vtrace import program
from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.config.network_config import TORSOS, TorsoConfig
from seed_rl.common.config.options import Checked, from_flags, option, option_of
from seed_rl.common.config.presets import Preset
from seed_rl.common.learner.optimizer import create_optimizer  # noqa: F401  For programs.
from seed_rl.compat import old_flags
from seed_rl.football import environment

PRESET = Preset(
    "football vtrace",
    dict(
        # Kurach et al. 2020, appendix, hyperparameters of IMPALA.
        unroll_length=32,
        batch_size=128,
        discounting=0.993,
        entropy_cost=0.00087453,
        baseline_cost=0.5,
        optimizer="adam",
        learning_rate=0.00019896,
        learning_rate_decay=False,
        total_environment_frames=500_000_000,
        compute_dtype="auto",
    ),
)
"""The paper's; see docs/environments/football.md."""

FAMILY = EnvironmentFamily(
    environment.FootballConfig, environment.create_environment, environment="game", images=True
)


@dataclasses.dataclass(frozen=True)
class FootballNetworkConfig(Checked):
    """Network: convolutions of the unpacked minimaps."""

    torso: str = option(
        "gfootball",
        "Convolutional torso: the paper's residual network of four sections, or a smaller one of "
        "other papers.",
        choices=("gfootball", *TORSOS),
        network=True,
    )
    compute_dtype: str = option_of(TorsoConfig, "compute_dtype")


def create_agent(
    action_space: Any, env_observation_space: Any, parametric_action_distribution: Any
) -> Any:
    """The network that the flags describe."""
    del action_space, env_observation_space
    from seed_rl.football import networks  # Actors must not import TensorFlow.

    config = from_flags(FootballNetworkConfig)
    return networks.GFootball(parametric_action_distribution, config.torso, config.compute_dtype)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the learner or an actor, depending on --run_mode."""
    old_flags.provide()  # Scripts of the original pass them.
    program.main(
        FAMILY,
        create_agent,
        agent_configs=(FootballNetworkConfig,),
        presets=(PRESET,),
        argv=argv,
    )


if __name__ == "__main__":
    main()
