"""Options of the on-policy agent: the sizes of a training step. Gin configures everything else."""

from __future__ import annotations

import dataclasses

from seed_rl.common.config.options import option
from seed_rl.common.errors import UserError

REPEAT, SHUFFLE = "repeat", "shuffle"
SPLIT, SPLIT_WITH_RECOMPUTATION = "split", "split_with_advantage_recomputation"
BATCH_MODES = (REPEAT, SHUFFLE, SPLIT, SPLIT_WITH_RECOMPUTATION)


@dataclasses.dataclass(frozen=True)
class OnPolicyConfig:
    """On-policy agent: its gin config, and the sizes of a training step."""

    gin_config: tuple[str, ...] = option(
        (),
        "Gin file that chooses and configures the parts of the algorithm; repeat the flag for "
        "several, of which later ones win.",
        repeated=True,
    )
    gin_bindings: tuple[str, ...] = option(
        (), "Gin binding that wins over the files, such as GAE.lambda_=0.9; repeat.", repeated=True
    )
    batch_mode: str = option(
        SPLIT,
        "How a training step is split into minibatches. repeat: whole unrolls, in the same "
        "minibatches each epoch; shuffle: whole unrolls, shuffled each epoch; split: single "
        "transitions, shuffled each epoch, with advantages computed once; "
        "split_with_advantage_recomputation: computed anew each epoch.",
        choices=BATCH_MODES,
    )
    epochs_per_step: int = option(1, "Passes over the experience of a training step.", minimum=1)
    batches_per_step: int = option(1, "Minibatches, and so gradient steps, per epoch.", minimum=1)
    batch_size: int = option(
        0,
        "Unrolls per minibatch, over all replicas. 0: a training step takes as many unrolls as "
        "there are training environments.",
        minimum=0,
        shared=True,
    )
    step_size_transitions: int | None = option(
        None,
        "Transitions per training step, one unroll of every training environment; replaces "
        "unroll_length.",
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
class StepSizes:
    """The sizes of a training step.

    Attributes:
      unroll_length: transitions per unroll.
      unrolls: unrolls per training step, over all replicas.
      batches: minibatches per epoch.
    """

    unroll_length: int
    unrolls: int
    batches: int

    @property
    def transitions(self) -> int:
        return self.unroll_length * self.unrolls


def step_sizes(config: OnPolicyConfig, unroll_length: int, num_training_envs: int) -> StepSizes:
    """The sizes that the options give.

    Args:
      config: options.
      unroll_length: used without `step_size_transitions`.
      num_training_envs: environments that are trained on.

    Raises:
      UserError: the sizes do not divide each other, or exclude each other.
    """
    if config.batch_size and (config.step_size_transitions or config.batch_size_transitions):
        raise UserError(
            "--batch_size counts unrolls, --step_size_transitions and --batch_size_transitions "
            "count transitions: set one or the other."
        )
    if size := config.step_size_transitions:
        _check_divides("--step_size_transitions", size, num_training_envs, "training environments")
        unroll_length = size // num_training_envs
    unrolls = config.batch_size * config.batches_per_step or num_training_envs
    batches = config.batches_per_step
    if size := config.batch_size_transitions:
        total = unroll_length * unrolls
        if total % size:
            raise UserError(
                f"--batch_size_transitions={size} does not divide the {total} transitions of a "
                f"training step ({unrolls} unrolls of {unroll_length}). Near it do: "
                f"{_near_divisors(total, size)}."
            )
        batches = total // size
    sizes = StepSizes(unroll_length, unrolls, batches)
    _check_minibatches(config, sizes)
    return sizes


def _check_minibatches(config: OnPolicyConfig, sizes: StepSizes) -> None:
    whole = config.batch_mode in (REPEAT, SHUFFLE)
    total = sizes.unrolls if whole else sizes.transitions
    if total % sizes.batches:
        unit = "unrolls" if whole else "transitions"
        hint = (
            f" Or use --batch_mode={SPLIT}, which splits unrolls into transitions." if whole else ""
        )
        raise UserError(
            f"A training step has {sizes.unrolls} unrolls of {sizes.unroll_length} transitions; "
            f"its {total} {unit} cannot be split into {sizes.batches} minibatches "
            f"(--batches_per_step). Near it are: {_near_divisors(total, sizes.batches)}.{hint}"
        )


def _check_divides(flag: str, size: int, count: int, what: str) -> None:
    if size % count:
        below, above = size - size % count, size - size % count + count
        near = f"{below} or {above}" if below else f"{above}"
        raise UserError(
            f"{flag}={size} cannot be divided among {count} {what}; nearest sizes: {near}."
        )


def _near_divisors(total: int, size: int) -> str:
    """The divisors of `total` around `size`, such as "12 or 16"."""
    below = max(d for d in range(1, min(size, total) + 1) if total % d == 0)
    above = min((d for d in range(size, total + 1) if total % d == 0), default=total)
    return f"{below}" if below == above else f"{below} or {above}"
