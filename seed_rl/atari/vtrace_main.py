"""V-trace on Atari: the learner (--run_mode=learner) or an actor (--run_mode=actor).

Hyperparameters of the IMPALA paper: --flagfile=seed_rl/atari/impala_paper.flags
Replay, to learn from few frames: --flagfile=seed_rl/atari/workstation.flags
"""

from __future__ import annotations

from collections.abc import Sequence

from seed_rl.agents.vtrace import program
from seed_rl.atari.environment import FAMILY
from seed_rl.common.config.presets import Preset

PRESET = Preset(
    "atari vtrace",
    dict(
        total_environment_frames=40_000_000,
        max_abs_reward=1.0,
        compute_dtype="auto",
        # Small batches make many updates from few frames, which suits a workstation. With an
        # entropy cost of 0.01, the policy on Pong stays uniform for millions of frames.
        batch_size=8,
        learning_rate=6e-4,
        entropy_cost=0.002,
        # Independently sampled actions rarely cross Freeway's road, which gives the first reward.
        action_persistence=32.0,
    ),
)
"""For two cores; docs/results has what it learned, on Pong before actions persisted."""


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the learner or an actor, depending on --run_mode."""
    program.main(FAMILY, presets=(PRESET,), argv=argv)


if __name__ == "__main__":
    main()
