"""PPO, or any other on-policy algorithm that a gin config describes, on Gymnasium environments.

The learner (--run_mode=learner) or an actor (--run_mode=actor).
"""

from __future__ import annotations

from collections.abc import Sequence

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
"""For small environments such as CartPole-v1, see docs/agents/policy_gradient.md."""

FAMILY = EnvironmentFamily(
    env.GymConfig, env.create_environment, env.create_batch, environment="env_name"
)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the learner or an actor, depending on --run_mode.

    Args:
      argv: name of the program, then flags; None: the command line.
    """
    program.main(FAMILY, presets=(PRESET,), argv=argv)


if __name__ == "__main__":
    main()
