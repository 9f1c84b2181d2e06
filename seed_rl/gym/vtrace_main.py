"""V-trace on Gymnasium: the learner (--run_mode=learner) or an actor (--run_mode=actor)."""

import functools

from seed_rl.gym import agents
from seed_rl.gym.env import FAMILY

PRESET = agents.VTRACE
main = functools.partial(agents.run, "vtrace", FAMILY)
"""`main(argv=None)` runs the learner or an actor, depending on --run_mode."""


if __name__ == "__main__":
    main()
