"""Flags of a program written for the original SEED RL that defines some itself.

existing_flags.py BEFORE AFTER [flags]

BEFORE and AFTER are what it defines before and after its imports: `nothing`, `flag` or `class`.
"""

import sys

from absl import flags


def own_flag():
    flags.DEFINE_integer("batch_size", 3, "Mine.")


def own_class():
    from seed_rl.common.config import options
    from seed_rl.common.config.learner_config import LearnerConfig

    options.define_flags(LearnerConfig, batch_size=3)


DEFINITIONS = {"nothing": lambda: None, "flag": own_flag, "class": own_class}


def main():
    before, after = (DEFINITIONS[name] for name in sys.argv[1:3])
    before()
    from seed_rl.atari import env
    from seed_rl.common import (
        actor,  # noqa: F401 - its import may not define flags either.
        common_flags,  # noqa: F401 - brings flags.
        utils,
    )
    from seed_rl.common.acting.actor import ActorConfig
    from seed_rl.common.config import options
    from seed_rl.compat.imported_flags import as_config

    after()
    values = flags.FLAGS
    values(sys.argv)
    actor_config = options.from_flags(ActorConfig)
    game = as_config(env.AtariConfig, None)
    print(values.run_mode, values.batch_size, values.logdir, actor_config.task, game.game)
    print(values.num_action_repeats, utils.config_from_flags()["game"])


if __name__ == "__main__":
    main()
