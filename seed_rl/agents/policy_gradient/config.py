"""Options of the on-policy agent: settings and sizes. A gin config chooses its parts."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

from seed_rl.common.config import flag_origins, learner_config
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.learner_config import LearnerConfig, RewardConfig
from seed_rl.common.config.options import Checked, from_flags, option, refuse_contradiction
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError

REPEAT = "repeat"
SHUFFLE = "shuffle"
SPLIT = "split"
SPLIT_WITH_ADVANTAGE_RECOMPUTATION = "split_with_advantage_recomputation"

BATCH_MODES = (REPEAT, SHUFFLE, SPLIT, SPLIT_WITH_ADVANTAGE_RECOMPUTATION)


@dataclasses.dataclass(frozen=True)
class MinibatchSettings(Checked):
    """Minibatches: the gradient steps of a training step."""

    batch_mode: str = option(
        REPEAT,
        "repeat: minibatches of unrolls, the same in each epoch; shuffle: of shuffled unrolls; "
        "split: of shuffled transitions, with advantages computed once per training step; "
        "split_with_advantage_recomputation: the same, with advantages computed anew in each "
        "epoch.",
        choices=BATCH_MODES,
    )
    epochs_per_step: int = option(1, "Passes over the batch in each training step.", minimum=1)
    batches_per_step: int = option(
        1,
        "Minibatches per batch, one gradient step each. 0: as many as give minibatches of "
        "batch_size unrolls, with one unroll per training environment in the batch.",
        minimum=0,
    )

    @property
    def splits(self) -> bool:
        """Whether minibatches hold transitions instead of unrolls."""
        return self.batch_mode in (SPLIT, SPLIT_WITH_ADVANTAGE_RECOMPUTATION)

    @property
    def gradient_steps(self) -> int:
        """Gradient steps per training step."""
        return self.epochs_per_step * self.batches_per_step

    def minibatch_size(self, num_unrolls: int, unroll_length: int) -> int:
        """Unrolls, or transitions, of one minibatch.

        Args:
          num_unrolls: of a batch, on one training device.
          unroll_length: transitions of an unroll.

        Raises:
          UserError: the batch cannot be divided into `batches_per_step` equal parts.
        """
        total = num_unrolls * unroll_length if self.splits else num_unrolls
        size, rest = divmod(total, self.batches_per_step)
        if not rest:
            return size
        whole, others = f"{num_unrolls} unrolls", "another --batch_size"
        if self.splits:
            whole += f" of {unroll_length} steps, {total} transitions"
            others += " or --unroll_length"
        near = " or ".join(map(str, _nearest_divisors(total, self.batches_per_step)))
        raise UserError(
            f"A training step with {whole} (on one training device) cannot be divided into "
            f"--batches_per_step={self.batches_per_step} equal minibatches: {total} / "
            f"{self.batches_per_step} = {total / self.batches_per_step:.2f}. Nearest values that "
            f"work: --batches_per_step={near}; or choose {others}."
        )


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
        "weights. False: acting continues, which is faster and off-policy by a few training steps.",
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
    clip_range: float = option(
        0.2,
        "PPO: epsilon; the probability ratio is clipped to [1 / (1 + epsilon), 1 + epsilon].",
        minimum=0.0,
    )
    normalize_advantages: bool = option(
        True, "PPO: whether advantages are normalized over each minibatch."
    )
    baseline_cost: float = option(
        0.5, "Weight of the value loss, the mean squared error.", minimum=0.0
    )
    value_clip_range: float | None = option(
        None,
        "Value clipping, as in PPO implementations: values are trained at most this far away from "
        "those predicted when acting. Default: no clipping.",
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
            near = " or ".join(map(str, _nearest_divisors(total, size)))
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

    Options that are not given come from the flags. The `batch_size` of `learner` is not used.

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


def _nearest_divisors(total: int, size: int) -> list[int]:
    """The divisors of `total` nearest to `size`, which is not a divisor."""
    divisors = [n for n in range(1, total + 1) if total % n == 0]
    return [n for n in divisors if n < size][-1:] + [n for n in divisors if n > size][:1]
