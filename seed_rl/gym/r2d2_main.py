"""R2D2 on Gymnasium: the learner (--run_mode=learner) or an actor (--run_mode=actor)."""

from __future__ import annotations

from collections.abc import Sequence

from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.gym import agents, env

PRESET = agents.R2D2

FAMILY = EnvironmentFamily(
    env.GymConfig, env.create_environment, env.create_batch, environment="env_name"
)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the learner or an actor, depending on --run_mode.

    Args:
      argv: name of the program, then flags; None: the command line.
    """
    agents.run("r2d2", FAMILY, argv)


if __name__ == "__main__":
    main()
