"""PPO, or any other on-policy algorithm that a gin config describes, on Atari.

The learner (--run_mode=learner) or an actor (--run_mode=actor).
"""

from __future__ import annotations

from collections.abc import Sequence

from seed_rl.agents.policy_gradient import program
from seed_rl.atari import env
from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.config.presets import Preset

PRESET = Preset(
    "atari ppo",
    dict(
        total_environment_frames=40_000_000,
        gin_config=("seed_rl/atari/gin/ppo.gin",),
        unroll_length=128,
        epochs_per_step=4,
        batches_per_step=4,
        # Whole unrolls: the stacked frames, and an LSTM, are states of the network.
        batch_mode="shuffle",
    ),
)
"""The usual PPO for Atari (Schulman et al. 2017, table 5), see docs/agents/policy_gradient.md."""

FAMILY = EnvironmentFamily(
    env.AtariConfig, env.create_environment, env.create_batch, environment="game"
)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the learner or an actor, depending on --run_mode.

    Args:
      argv: name of the program, then flags; None: the command line.
    """
    program.main(FAMILY, presets=(PRESET,), argv=argv)


if __name__ == "__main__":
    main()
