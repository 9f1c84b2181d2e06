"""PPO, or any other on-policy algorithm that a gin config describes, on MuJoCo.

The learner (--run_mode=learner) or an actor (--run_mode=actor).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from seed_rl.agents.policy_gradient import program
from seed_rl.common.config.presets import Preset
from seed_rl.compat import old_flags
from seed_rl.mujoco.shared_models import FAMILY

PRESET = Preset(
    "mujoco ppo",
    dict(
        total_environment_frames=1_000_000,
        gin_config=("seed_rl/mujoco/gin/ppo.gin",),
        step_size_transitions=2048,
        batch_size_transitions=64,
        batch_mode="split",
        epochs_per_step=10,
        training_threads=1,
        learning_rate=3e-4,
        clip_norm=0.5,
        # As Andrychowicz et al. 2020 recommend, sections 3.2 and 3.3.
        mlp_activation="tanh",
        normalize_observations=True,
        # They recommend 0.5, see docs/results/README.md.
        action_std_for_zero_param=0.6,
        # Used once one of these is set instead of the sizes above.
        unroll_length=64,
        batches_per_step=16,
    ),
)
"""Few frames: training steps of 2,048 transitions, see docs/agents/policy_gradient.md."""

create_agent = program.create_agent


def create_optimizer(
    final_iteration: int, optimizer_fn: Callable[[], Any] | None = None
) -> tuple[Any, Callable[[Any], Any]]:
    """The optimizer that the gin config describes, see `ppo_parts.create_optimizer`."""
    from seed_rl.mujoco import ppo_parts

    if optimizer_fn is None:
        return ppo_parts.create_optimizer(final_iteration)
    return ppo_parts.create_optimizer(final_iteration, optimizer_fn)


def orthogonal_gain_sqrt2() -> Any:
    """See `ppo_parts.orthogonal_gain_sqrt2`, which gin configs name."""
    from seed_rl.mujoco import ppo_parts

    return ppo_parts.orthogonal_gain_sqrt2()


def orthogonal_gain_0dot01() -> Any:
    """See `ppo_parts.orthogonal_gain_0dot01`, which gin configs name."""
    from seed_rl.mujoco import ppo_parts

    return ppo_parts.orthogonal_gain_0dot01()


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the learner or an actor, depending on --run_mode."""
    old_flags.provide()  # Scripts of the original pass them.
    program.main(
        FAMILY,
        create_agent,
        create_optimizer,
        presets=(PRESET,),
        gin_modules=("seed_rl.mujoco.ppo_parts",),
        argv=argv,
    )


if __name__ == "__main__":
    main()
