"""PQN on Atari: the learner (--run_mode=learner) or an actor (--run_mode=actor)."""

from __future__ import annotations

from collections.abc import Sequence

from seed_rl.agents.pqn import program
from seed_rl.atari.environment import FAMILY
from seed_rl.common.config.presets import Preset

PRESET = Preset(
    "atari pqn",
    dict(
        total_environment_frames=40_000_000,
        episodic_life=True,
        full_action_space=False,
        max_abs_reward=1.0,
        compute_dtype="auto",
    ),
)
"""The paper's, with the frames of its code for Pong; see docs/agents/pqn.md."""


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the learner or an actor, depending on --run_mode."""
    program.main(FAMILY, presets=(PRESET,), argv=argv)


if __name__ == "__main__":
    main()
