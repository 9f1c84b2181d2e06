"""Options of the on-policy agent: settings and sizes. A gin config chooses its parts."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

from seed_rl.agents.policy_gradient.modules.minibatch_settings import (
    MinibatchSettings,
    nearest_divisors,
)
from seed_rl.common.config import flag_origins, learner_config
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.learner_config import LearnerConfig, RewardConfig
from seed_rl.common.config.options import Checked, from_flags, option, refuse_contradiction
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError


@dataclasses.dataclass(frozen=True)
class StepConfig(Checked):
    """On-policy training steps: their sizes."""

    batch_size: int = option(
        0,
        "Unrolls per minibatch, over all replicas. 0: a training step takes as many unrolls as "
        "there are training environments.",
        minimum=0,
        shared=True,
    )
    step_size_transitions: int | None = option(
        None,
        "Transitions per training step, in as many unrolls as there are training environments; "
        "replaces unroll_length.",
        minimum=1,
    )
    batch_size_transitions: int | None = option(
        None, "Transitions per minibatch, over all replicas; replaces batches_per_step.", minimum=1
    )
    block_inference_on_training: bool = option(
        True,
        "Whether inference waits while a training step runs, so that all new steps use the new "
        "weights. False: acting continues, which is faster and slightly off-policy.",
    )


@dataclasses.dataclass(frozen=True)
class OnPolicyConfig(StepConfig):
    """On-policy agent: its gin config, and the sizes of a training step."""

    gin_config: tuple[str, ...] = option(
        (),
        "Gin file that chooses and configures the parts of the algorithm; repeat the flag for "
        "several files; later ones win.",
        repeated=True,
    )
    gin_bindings: tuple[str, ...] = option(
        (),
        "Gin binding that wins over the files, such as GeneralizedOnPolicyLoss.huber_delta=1; "
        "repeat the flag for several.",
        repeated=True,
    )


@dataclasses.dataclass(frozen=True)
class LossConfig(RewardConfig):
    """On-policy agent: the loss."""

    gae_lambda: float = option(
        0.95, "Lambda of the advantages, by GAE or V-trace.", minimum=0.0, maximum=1.0
    )
    clip_range: float = option(0.2, "PPO: bound of the probability ratio.", minimum=0.0)
    normalize_advantages: bool = option(
        True, "PPO: whether advantages are normalized over each minibatch."
    )
    baseline_cost: float = option(
        0.5, "Weight of the value loss, the mean squared error.", minimum=0.0
    )
    value_clip_range: float | None = option(
        None,
        "Values are not trained further away than this from those predicted when acting, as in "
        "PPO implementations. Default: no bound.",
        minimum=0.0,
    )
    entropy_cost: float = option(0.0, "Weight of the entropy bonus.", minimum=0.0)
    reward_scaling: float = option(1.0, "Factor of rewards, after clipping.", minimum=0.0)


class StepSizes(NamedTuple):
    """The sizes of a training step.

    Attributes:
      unroll_length: transitions per unroll.
      unrolls: unrolls per training step, over all replicas.
      minibatches: how they are divided.
    """

    unroll_length: int
    unrolls: int
    minibatches: MinibatchSettings


def step_sizes(
    config: StepConfig,
    minibatches: MinibatchSettings,
    unroll_length: int,
    num_training_envs: int,
    about: bool = False,
) -> StepSizes:
    """The sizes that the options give.

    Args:
      config: options.
      minibatches: its `batches_per_step` is used without `batch_size_transitions`; 0: the number of
        minibatches of `batch_size` in `num_training_envs` unrolls, at least one.
      unroll_length: used without `step_size_transitions`.
      num_training_envs: environments that are trained on.
      about: whether `step_size_transitions` comes from a preset for any number of environments: the
        step then has about as many, in minibatches of exactly `batch_size_transitions`.

    Raises:
      UserError: the sizes do not divide each other, or exclude each other.
    """
    if config.batch_size and (config.step_size_transitions or config.batch_size_transitions):
        raise UserError(
            "--batch_size counts unrolls, --step_size_transitions and --batch_size_transitions "
            "count transitions: set one or the other."
        )
    if size := config.step_size_transitions:
        if about:
            minibatch = config.batch_size_transitions or 1
            unit = minibatch // math.gcd(minibatch, num_training_envs)
            size = max(1, round(size / num_training_envs / unit)) * unit * num_training_envs
        if size % num_training_envs:
            raise UserError(
                f"--step_size_transitions={size} cannot be divided among {num_training_envs} "
                f"training environments; nearest sizes: {_multiples(size, num_training_envs)}."
            )
        unroll_length = size // num_training_envs
    if not minibatches.batches_per_step:
        number = num_training_envs // config.batch_size if config.batch_size else 1
        minibatches = dataclasses.replace(minibatches, batches_per_step=max(1, number))
    unrolls = config.batch_size * minibatches.batches_per_step or num_training_envs
    if size := config.batch_size_transitions:
        total = unroll_length * unrolls
        if total % size:
            near = " or ".join(map(str, nearest_divisors(total, size)))
            raise UserError(
                f"--batch_size_transitions={size} does not divide the {total} transitions of a "
                f"training step ({unrolls} unrolls of {unroll_length}); nearest sizes: {near}."
            )
        minibatches = dataclasses.replace(minibatches, batches_per_step=total // size)
    minibatches.minibatch_size(unrolls, unroll_length)
    return StepSizes(unroll_length, unrolls, minibatches)


def settled_sizes(
    config: StepConfig | None = None,
    settings: MinibatchSettings | None = None,
    run: RunConfig | None = None,
    learner: LearnerConfig | None = None,
    devices: DeviceConfig | None = None,
) -> tuple[StepConfig, MinibatchSettings, LearnerConfig]:
    """The sizes of a program: the user's choices win over a preset's sizes in transitions.

    Options that are not given come from the flags.

    Args:
      config: sizes of a training step.
      settings: its minibatches, see `step_sizes`.
      run: the environments of a learner.
      learner: its `batch_size` is not used.
      devices: how many learners train together.

    Returns:
      The options from which the sizes follow, and minibatches and learner with these sizes.

    Raises:
      UserError: see `step_sizes`; or flags contradict each other.
    """
    config = config or from_flags(StepConfig)
    settings = settings or from_flags(MinibatchSettings)
    run = run or from_flags(RunConfig)
    learner = learner or from_flags(LearnerConfig, batch_size=1)  # Replaced below.
    about = flag_origins.may_be_adapted("step_size_transitions")
    others = ("unroll_length", "batches_per_step", "batch_size")
    if about and any(map(flag_origins.is_chosen, others)):
        config = dataclasses.replace(config, step_size_transitions=None)
        if not flag_origins.is_chosen("batch_size_transitions"):
            config = dataclasses.replace(config, batch_size_transitions=None)
    learners = (devices or from_flags(DeviceConfig)).learners
    learner_config.check_training_envs(run)
    envs = learners * run.training_envs
    sizes = step_sizes(config, settings, learner.unroll_length, envs, about)
    for given, name, value in (
        ("step_size_transitions", "unroll_length", sizes.unroll_length),
        ("batch_size_transitions", "batches_per_step", sizes.minibatches.batches_per_step),
    ):
        if size := getattr(config, given):
            refuse_contradiction(name, value, f"--{given}={size}")
    learner = dataclasses.replace(
        learner, batch_size=sizes.unrolls, unroll_length=sizes.unroll_length
    )
    return config, sizes.minibatches, learner


def _multiples(size: int, factor: int) -> str:
    """The multiples of `factor` around `size`, such as "96 or 104"."""
    below = size - size % factor
    return " or ".join(str(multiple) for multiple in (below, below + factor) if multiple)
