"""R2D2 on Atari: the learner (--run_mode=learner) or an actor (--run_mode=actor).

Hyperparameters of the paper: --flagfile=seed_rl/atari/r2d2_paper.flags
"""

from __future__ import annotations

from seed_rl.agents.r2d2 import program
from seed_rl.agents.r2d2.program import create_agent, create_optimizer
from seed_rl.atari import env
from seed_rl.common.acting.environment_family import EnvironmentFamily

FAMILY = EnvironmentFamily(
    env.AtariConfig, env.create_environment, env.create_vector_environment, environment="game"
)


def main() -> None:
    """Runs the learner or an actor, depending on --run_mode."""
    program.main(FAMILY, create_agent, create_optimizer)


if __name__ == "__main__":
    main()
