"""SAC on MuJoCo: the learner (--run_mode=learner) or an actor (--run_mode=actor)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seed_rl.agents.sac import program
from seed_rl.mujoco.vtrace_main import FAMILY, create_optimizer


def create_agent(
    action_space: Any, env_observation_space: Any, parametric_action_distribution: Any
) -> Any:
    """The network that the flags describe."""
    return program.create_agent(action_space, env_observation_space, parametric_action_distribution)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the learner or an actor, depending on --run_mode.

    Args:
      argv: name of the program, then flags; None: the command line.
    """
    program.main(FAMILY, create_agent, create_optimizer, argv=argv)


if __name__ == "__main__":
    main()
