"""R2D2 on Gymnasium: the learner (--run_mode=learner) or an actor (--run_mode=actor)."""

from __future__ import annotations

from collections.abc import Sequence

from seed_rl.agents.r2d2 import program
from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.config.presets import Preset
from seed_rl.gym import env

PRESET = Preset(
    "gym r2d2",
    dict(
        batch_size=32,
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
    ),
)
"""Small networks and a small replay, for environments such as CartPole; see docs/agents/r2d2.md."""

FAMILY = EnvironmentFamily(
    env.GymConfig, env.create_environment, env.create_batch, environment="env_name"
)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the learner or an actor, depending on --run_mode.

    Args:
      argv: name of the program, then flags; None: the command line.
    """
    program.main(FAMILY, presets=(PRESET,), argv=argv)


if __name__ == "__main__":
    main()
