"""How a training step goes through its batch. TensorFlow is not imported."""

from __future__ import annotations

import dataclasses

from seed_rl.common.config.options import Checked, option
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
    epochs_per_step: int = option(1, "How often a training step goes through its batch.", minimum=1)
    batches_per_step: int = option(
        1,
        "Minibatches, each for one gradient step, into which a batch is divided. 0: the number "
        "of minibatches of batch_size unrolls, given one unroll of each training environment.",
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
        near = " or ".join(map(str, nearest_divisors(total, self.batches_per_step)))
        raise UserError(
            f"A training step with {whole} (on one training device) cannot be divided into "
            f"--batches_per_step={self.batches_per_step} equal minibatches: {total} / "
            f"{self.batches_per_step} = {total / self.batches_per_step:.2f}. Nearest values that "
            f"work: --batches_per_step={near}; or choose {others}."
        )


def nearest_divisors(total: int, size: int) -> list[int]:
    """The divisors of `total` nearest to `size`, which is not a divisor."""
    divisors = [n for n in range(1, total + 1) if total % n == 0]
    return [n for n in divisors if n < size][-1:] + [n for n in divisors if n > size][:1]
