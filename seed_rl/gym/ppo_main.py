"""PPO, or any other on-policy algorithm that a gin config describes, on Gymnasium environments.

The learner (--run_mode=learner) or an actor (--run_mode=actor).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seed_rl.agents.policy_gradient import program
from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.config.presets import Preset
from seed_rl.gym import env

PRESET = Preset(
    "gym ppo",
    dict(
        gin_config=("seed_rl/gym/gin/ppo.gin",),
        unroll_length=32,
        batch_mode="split",
        epochs_per_step=4,
        batches_per_step=4,
    ),
)
"""Learns CartPole-v1 within a minute, see docs/agents/policy_gradient.md."""

FAMILY = EnvironmentFamily(env.GymConfig, env.create_environment, environment="env_name")


def create_agent(
    action_space: Any, env_observation_space: Any, parametric_action_distribution: Any
) -> Any:
    """The network that the gin config describes; which part does depends on the observations."""
    del action_space
    from seed_rl.agents.policy_gradient import networks  # Actors must not import TensorFlow.

    return networks.create_network(env_observation_space, parametric_action_distribution)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the learner or an actor, depending on --run_mode.

    Args:
      argv: name of the program, then flags; None: the command line.
    """
    program.main(FAMILY, create_agent, presets=(PRESET,), argv=argv)


if __name__ == "__main__":
    main()
