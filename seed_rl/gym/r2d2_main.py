"""R2D2 on Gymnasium: the learner (--run_mode=learner) or an actor (--run_mode=actor)."""

import functools

from seed_rl.gym import agents
from seed_rl.gym.env import FAMILY

PRESET = agents.R2D2
main = functools.partial(agents.run, "r2d2", FAMILY)
"""`main(argv=None)` runs the learner or an actor, depending on --run_mode."""


if __name__ == "__main__":
    main()
