"""R2D2 on Atari: the learner (--run_mode=learner) or an actor (--run_mode=actor).

Hyperparameters of the paper: --flagfile=seed_rl/atari/r2d2_paper.flags
"""

from __future__ import annotations

from collections.abc import Sequence

from seed_rl.agents.r2d2 import program
from seed_rl.atari.environment import FAMILY
from seed_rl.common.config.presets import Preset
from seed_rl.common.learner.optimizer import create_optimizer  # noqa: F401  For programs.
from seed_rl.compat import old_flags
from seed_rl.compat.r2d2_agents import create_agent  # noqa: F401  For programs.

PRESET = Preset("atari r2d2", dict(total_environment_frames=40_000_000, compute_dtype="auto"))
"""The length of the other agents' runs; those of the paper are 250 times as long."""


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the learner or an actor, depending on --run_mode."""
    old_flags.provide()  # Scripts of the original pass them.
    program.main(FAMILY, presets=(PRESET,), argv=argv)


if __name__ == "__main__":
    main()
