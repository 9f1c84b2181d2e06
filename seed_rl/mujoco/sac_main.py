"""SAC on MuJoCo: the learner (--run_mode=learner) or an actor (--run_mode=actor)."""

from __future__ import annotations

from collections.abc import Sequence

from seed_rl.agents.sac import program
from seed_rl.common.config.presets import Preset
from seed_rl.common.learner.optimizer import create_optimizer  # noqa: F401  For programs.
from seed_rl.compat import old_flags
from seed_rl.mujoco.shared_models import FAMILY

PRESET = Preset("mujoco sac", dict(total_environment_frames=1_000_000))
"""The usual length of SAC's runs on MuJoCo (Haarnoja et al. 2018 use 1 to 10 million steps)."""

create_agent = program.create_agent


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the learner or an actor, depending on --run_mode."""
    old_flags.provide()  # Scripts of the original pass them.
    program.main(FAMILY, create_agent, presets=(PRESET,), argv=argv)


if __name__ == "__main__":
    main()
