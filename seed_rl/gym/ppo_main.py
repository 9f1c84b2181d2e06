"""PPO, or any other on-policy algorithm that a gin config describes, on Gymnasium environments.

The learner (--run_mode=learner) or an actor (--run_mode=actor).
"""

from __future__ import annotations

from collections.abc import Sequence

from seed_rl.gym import agents
from seed_rl.gym.env import FAMILY

PRESET = agents.PPO


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the learner or an actor, depending on --run_mode.

    Args:
      argv: name of the program, then flags; None: the command line.
    """
    agents.run("ppo", FAMILY, argv)


if __name__ == "__main__":
    main()
