"""PPO, or any other on-policy algorithm that a gin config describes, on Atari.

The learner (--run_mode=learner) or an actor (--run_mode=actor).
"""

from __future__ import annotations

from collections.abc import Sequence

from seed_rl.agents.policy_gradient import program
from seed_rl.atari.environment import FAMILY
from seed_rl.common.config.presets import Preset

PRESET = Preset(
    "atari ppo",
    dict(
        total_environment_frames=10_000_000,
        episodic_life=True,
        full_action_space=False,
        gin_config=("seed_rl/atari/gin/ppo.gin",),
        step_size_transitions=2048,
        batch_size_transitions=64,
        batch_mode="split",  # With an LSTM: "shuffle" keeps unrolls whole.
        epochs_per_step=4,
        # Used once one of these is set instead of the sizes above.
        unroll_length=128,
        batches_per_step=32,
        clip_range=0.1,
        entropy_cost=0.01,
        max_abs_reward=1.0,
        compute_dtype="auto",
        learning_rate=2.5e-4,
        clip_norm=0.5,
    ),
)
"""CleanRL's, with a quarter of its minibatches' size; see docs/agents/policy_gradient.md."""


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the learner or an actor, depending on --run_mode."""
    program.main(FAMILY, presets=(PRESET,), argv=argv)


if __name__ == "__main__":
    main()
