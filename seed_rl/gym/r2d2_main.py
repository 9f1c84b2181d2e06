"""R2D2 on any Gymnasium environment: learner (--run_mode=learner) or actor (=actor)."""

from __future__ import annotations

from typing import Any

from seed_rl.agents.r2d2 import program
from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.gym import env

FAMILY = EnvironmentFamily(env.GymConfig, env.create_environment, environment="env_name")


DEFAULTS: dict[str, Any] = dict(
    batch_size=32,
    unroll_length=20,
    burn_in=10,
    discounting=0.99,
    replay_buffer_size=20_000,
    replay_buffer_min_size=200,
    replay_ratio=4.0,
    update_target_every_n_step=200,
    learning_rate=5e-4,
    optimizer_epsilon=1e-3,
    lstm_size=64,
    head_size=64,
    mlp_sizes=(64,),
    stack_size=1,
)
"""For small environments such as CartPole-v1."""


def main() -> None:
    """Runs the learner or an actor, as the flags say."""
    program.main(FAMILY, **DEFAULTS)


if __name__ == "__main__":
    main()
