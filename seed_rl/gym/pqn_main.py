"""PQN on Gymnasium: the learner (--run_mode=learner) or an actor (--run_mode=actor)."""

from __future__ import annotations

from collections.abc import Sequence

from seed_rl.gym import agents
from seed_rl.gym.env import FAMILY

PRESET = agents.PQN


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the learner or an actor, depending on --run_mode.

    Args:
      argv: name of the program, then flags; None: the command line.
    """
    agents.run("pqn", FAMILY, argv)


if __name__ == "__main__":
    main()
