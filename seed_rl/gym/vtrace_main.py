"""V-trace on Gymnasium: the learner (--run_mode=learner) or an actor (--run_mode=actor)."""

from __future__ import annotations

from typing import Any

from seed_rl.agents.vtrace import program
from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.config.network_config import ConvNetworkConfig, MLPNetworkConfig
from seed_rl.common.config.options import from_flags
from seed_rl.gym import env

DEFAULTS: dict[str, Any] = dict(
    stack_size=1,
    batch_size=8,
    optimizer="adam",
    learning_rate=1e-3,
    # A policy that has become good yields tiny gradients, which Adam turns into full steps. The
    # divergence bounds them: without it, CartPole collapses again and again.
    kl_cost=10.0,
    # Values are learned at whatever size rewards have; their gradient must not drown the policy's.
    baseline_cost=0.1,
    mlp_activation="tanh",
)
"""Tuned on CartPole-v1, see docs/agents/vtrace.md."""

FAMILY = EnvironmentFamily(env.GymConfig, env.create_environment, environment="env_name")


def create_agent(
    action_space: Any, env_observation_space: Any, parametric_action_distribution: Any
) -> Any:
    """Creates the network from the flags: convolutional for images, otherwise dense."""
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


def main() -> None:
    """Runs the learner or an actor, depending on --run_mode."""
    program.main(
        FAMILY,
        create_agent,
        agent_configs=(MLPNetworkConfig, ConvNetworkConfig),
        **DEFAULTS,
    )


if __name__ == "__main__":
    main()
