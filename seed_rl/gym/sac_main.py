"""SAC on Gymnasium: the learner (--run_mode=learner) or an actor (--run_mode=actor)."""

from __future__ import annotations

from collections.abc import Sequence

from seed_rl.agents.sac import program
from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.config.presets import Preset
from seed_rl.gym import env

PRESET = Preset(
    "gym sac",
    dict(
        env_name="Pendulum-v1",
        replay_buffer_size=100_000,
        replay_buffer_min_size=1_000,
        learning_rate=1e-3,
    ),
)
"""For Pendulum-v1, see docs/agents/sac.md."""

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
