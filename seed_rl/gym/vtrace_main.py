"""V-trace on Gymnasium: the learner (--run_mode=learner) or an actor (--run_mode=actor)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seed_rl.agents.vtrace import program
from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.config.network_config import ConvNetworkConfig, MLPNetworkConfig
from seed_rl.common.config.options import from_flags
from seed_rl.common.config.presets import Preset
from seed_rl.gym import env

PRESET = Preset(
    "gym vtrace",
    dict(
        stack_size=1,
        batch_size=8,
        learning_rate=1e-3,
        # A good policy yields tiny gradients, which Adam turns into full steps. The KL cost bounds
        # them; without it, CartPole collapses repeatedly.
        kl_cost=10.0,
        # Rewards are not normalized: keeps value gradients from dominating those of the policy.
        baseline_cost=0.1,
        mlp_activation="tanh",
    ),
)
"""Tuned on CartPole-v1, see docs/agents/vtrace.md."""

FAMILY = EnvironmentFamily(
    env.GymConfig, env.create_environment, env.create_batch, environment="env_name"
)


def create_agent(
    action_space: Any, env_observation_space: Any, parametric_action_distribution: Any
) -> Any:
    """The network that the flags describe: convolutions for images, dense layers otherwise."""
    del action_space
    from seed_rl.common.networks import (
        network_factory,  # Actors must not import TensorFlow.
        space_encoder,
    )

    space_encoder.refuse_unused_flags(env_observation_space)
    return network_factory.create_network(
        env_observation_space,
        parametric_action_distribution,
        conv=from_flags(ConvNetworkConfig),
        mlp=from_flags(MLPNetworkConfig),
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the learner or an actor, depending on --run_mode.

    Args:
      argv: name of the program, then flags; None: the command line.
    """
    program.main(
        FAMILY,
        create_agent,
        agent_configs=(MLPNetworkConfig, ConvNetworkConfig),
        presets=(PRESET,),
        argv=argv,
    )


if __name__ == "__main__":
    main()
