"""A program that is an actor over any Gymnasium environment, for tests with real processes."""

from __future__ import annotations

import sys

from seed_rl.common import actor, config
from seed_rl.gym import env


def main() -> None:
    try:
        actor.actor_loop(
            env.create_environment,
            config.from_flags(actor.ActorConfig),
            config.from_flags(env.GymConfig),
        )
    finally:
        print("TensorFlow imported:", "tensorflow" in sys.modules, flush=True)


if __name__ == "__main__":
    config.define_flags(actor.ActorConfig, env.GymConfig)
    config.run_main(main)
