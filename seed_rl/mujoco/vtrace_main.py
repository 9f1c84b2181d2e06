"""V-trace on MuJoCo: the learner (--run_mode=learner) or an actor (--run_mode=actor)."""

from __future__ import annotations

from collections.abc import Sequence

from seed_rl.agents.vtrace import program
from seed_rl.common.config.presets import Preset
from seed_rl.common.learner.optimizer import create_optimizer  # noqa: F401  For programs.
from seed_rl.compat import old_flags
from seed_rl.mujoco.shared_models import FAMILY

PRESET = Preset(
    "mujoco vtrace",
    dict(
        total_environment_frames=4_000_000,
        stack_size=1,
        # Small batches make many updates from few frames.
        batch_size=4,
        unroll_length=16,
        learning_rate=3e-4,
        lambda_=0.95,
        # Unlike PPO, V-trace does not bound the change of a policy: without a bonus the standard
        # deviation falls to its minimum within a million frames.
        entropy_cost=0.01,
        target_entropy=0.0,
        normalize_observations=True,
        popart=True,
        mlp_activation="tanh",
    ),
)
"""Learns HalfCheetah-v5 on two cores; see docs/results."""

create_agent = program.create_agent


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the learner or an actor, depending on --run_mode."""
    old_flags.provide()  # Scripts of the original pass them.
    program.main(FAMILY, create_agent, presets=(PRESET,), argv=argv)


if __name__ == "__main__":
    main()
