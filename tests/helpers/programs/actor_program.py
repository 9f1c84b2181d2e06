"""A program that is an actor over any Gymnasium environment, for tests with real processes."""

from __future__ import annotations

import sys

from seed_rl.common.acting import actor
from seed_rl.common.config import options
from seed_rl.gym import env


def main() -> None:
    try:
        actor.actor_loop(
            env.create_environment,
            options.from_flags(actor.ActorConfig),
            options.from_flags(env.GymConfig),
        )
    finally:
        print("TensorFlow imported:", "tensorflow" in sys.modules, flush=True)


if __name__ == "__main__":
    options.define_flags(actor.ActorConfig, env.GymConfig)
    options.run_main(main)
