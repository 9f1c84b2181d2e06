"""PQN on external environments: the learner."""

from __future__ import annotations

from collections.abc import Sequence

from seed_rl.external import env
from seed_rl.gym import agents


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the learner; clients are its actors.

    Args:
      argv: name of the program, then flags; None: the command line.
    """
    agents.run("pqn", env.FAMILY, argv)


if __name__ == "__main__":
    main()
