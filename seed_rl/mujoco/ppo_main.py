"""PPO, or any other on-policy algorithm that a gin config describes, on MuJoCo.

The learner (--run_mode=learner) or an actor (--run_mode=actor).
"""

from __future__ import annotations

from typing import Any

from seed_rl.agents.policy_gradient import program
from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.config.presets import Preset
from seed_rl.mujoco import env

PRESET = Preset(
    "mujoco ppo",
    dict(
        gin_config=("seed_rl/mujoco/gin/ppo.gin",),
        unroll_length=64,
        batch_mode="split",
        epochs_per_step=10,
        batches_per_step=16,
    ),
)
"""Training steps of 8,192 transitions with 128 environments, see docs/agents/policy_gradient.md."""

FAMILY = EnvironmentFamily(env.MujocoConfig, env.create, environment="env_name")


def create_agent(
    action_space: Any, env_observation_space: Any, parametric_action_distribution: Any
) -> Any:
    """The network that the gin config describes; which part does depends on the observations."""
    del action_space
    from seed_rl.agents.policy_gradient import networks  # Actors must not import TensorFlow.

    return networks.create_network(env_observation_space, parametric_action_distribution)


def main() -> None:
    """Runs the learner or an actor, depending on --run_mode."""
    program.main(FAMILY, create_agent, presets=(PRESET,))


if __name__ == "__main__":
    main()
