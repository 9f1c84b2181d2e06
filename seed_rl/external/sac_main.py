"""SAC on external environments: the learner."""

import functools

from seed_rl.external import env
from seed_rl.gym import agents

main = functools.partial(agents.run, "sac", env.FAMILY)
"""`main(argv=None)` runs the learner; clients are its actors."""


if __name__ == "__main__":
    main()
