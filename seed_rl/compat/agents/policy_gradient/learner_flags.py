"""The flags of the on-policy learner, and what existing programs compute from them.

Importing this module defines the flags, which such programs do not define themselves.
"""

from __future__ import annotations

from absl import flags

from seed_rl.agents.policy_gradient.config import MinibatchSettings, OnPolicyConfig
from seed_rl.common.config import options
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError
from seed_rl.compat import imported_flags, original_defaults
from seed_rl.compat.agents.policy_gradient.learner_config import TrainingConfig

__all__ = [
    "batch_size_from_flags",
    "batches_per_step_from_flags",
    "training_config_from_flags",
    "unroll_length_from_flags",
]

imported_flags.provide(
    RunConfig,
    LearnerConfig,
    OnPolicyConfig,
    MinibatchSettings,
    DeviceConfig,
    presets=(original_defaults.ON_POLICY,),
)

if "clip_norm" not in flags.FLAGS:  # Other options of the optimizer are in the gin config.
    flags.DEFINE_float(
        "clip_norm",
        None,
        "Gradients are scaled down to at most this global norm; 0: no clipping. Default: as the "
        "gin config says, or none with an optimizer of the program.",
        lower_bound=0.0,
        allow_override=True,
    )


def training_config_from_flags() -> TrainingConfig:
    """All options, with sizes in unrolls; see `TrainingConfig.with_sizes`.

    Raises:
      UserError: the sizes do not divide each other, or exclude each other.
    """
    return options.from_flags(TrainingConfig).with_sizes()


def unroll_length_from_flags() -> int:
    """Transitions per unroll: --unroll_length, or what --step_size_transitions makes of it.

    Raises:
      UserError: see `training_config_from_flags`.
    """
    return training_config_from_flags().unroll_length


def batches_per_step_from_flags() -> int:
    """Minibatches per epoch: --batches_per_step, or what --batch_size_transitions makes of it.

    Raises:
      UserError: see `training_config_from_flags`.
    """
    return training_config_from_flags().batches_per_step


def batch_size_from_flags() -> int:
    """Unrolls per minibatch, over all replicas.

    Raises:
      UserError: see `training_config_from_flags`; or minibatches of transitions are no whole number
        of unrolls.
    """
    config = training_config_from_flags()
    size, rest = divmod(config.num_training_envs(), config.batches_per_step)
    if config.batch_size or not rest:
        return config.batch_size or size
    raise UserError(
        f"A minibatch is not a whole number of unrolls: {config.num_training_envs()} unrolls are "
        f"split into --batches_per_step={config.batches_per_step}. Use another number, or "
        "seed_rl.agents.policy_gradient.config.step_sizes for the size in transitions."
    )
