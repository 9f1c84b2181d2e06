"""Options of the replay."""

from __future__ import annotations

import dataclasses
import sys

from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.options import Checked, option
from seed_rl.common.errors import UserError

SAVE_NEVER, SAVE_AT_STOP, SAVE_ALWAYS = "never", "stop", "always"


@dataclasses.dataclass(frozen=True)
class ReplayConfig(Checked):
    """Replay: library defaults from the R2D2 paper, and SEED RL's replay ratio."""

    replay_buffer_size: int = option(
        100_000, "Capacity in unrolls; the oldest are replaced first.", minimum=1
    )
    replay_buffer_min_size: int = option(
        5_000, "Unrolls in the replay before training starts.", minimum=1
    )
    replay_ratio: float = option(
        0.75,
        "Unrolls sampled per unroll inserted (samples per insert). Acting or training waits "
        "if it runs ahead. 0: neither waits.",
        minimum=0,
    )
    replay_ratio_slack: int = option(
        256,
        "How far acting or training may run ahead before it waits, in sampled unrolls; at least "
        "one batch.",
        minimum=1,
    )
    priority_exponent: float = option(
        0.9,
        "Unrolls are sampled in proportion to priority ** priority_exponent. 0: uniformly.",
        minimum=0,
    )
    importance_sampling_exponent: float = option(
        0.6,
        "Exponent (beta) of the importance weights that correct for prioritized sampling. 0: no "
        "correction; 1: full correction.",
        minimum=0,
        maximum=1,
    )
    replay_stratified: bool = option(
        False,
        "Whether to draw one unroll from each of batch_size equal ranges of the cumulative "
        "priority, which reduces variance between batches, instead of drawing independently.",
    )
    replay_compression_level: int = option(
        1,
        "zstd level, 1 to 19; higher levels save memory and slow down insertion. 0: no "
        "compression.",
        minimum=0,
        maximum=19,
    )
    replay_memory_gb: float | None = option(
        None,
        "Memory limit of the replay in gigabytes (1e9 bytes); beyond it, the oldest unrolls are "
        "dropped early. Default: 80 % of the memory available at the start.",
        minimum=0,
    )
    replay_assumed_compression: float = option(
        30.0,
        "Compression ratio of images that the memory estimate at the start assumes (Atari frames "
        "reach 50 to 260). 1: no compression.",
        minimum=1,
    )
    save_replay: str = option(
        SAVE_AT_STOP,
        "Which checkpoints include the replay: none, the one written when a run stops or ends, or "
        "all. Without it, a resumed run refills the replay before training continues.",
        choices=(SAVE_NEVER, SAVE_AT_STOP, SAVE_ALWAYS),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.replay_buffer_min_size > self.replay_buffer_size:
            raise UserError(
                f"Training would never start: --replay_buffer_min_size="
                f"{self.replay_buffer_min_size} is larger than --replay_buffer_size="
                f"{self.replay_buffer_size}. Lower the former or raise the latter."
            )


@dataclasses.dataclass(frozen=True)
class HindsightConfig(Checked):
    """Hindsight replay: for environments with goals."""

    her_window_length: int = option(
        0,
        "Steps of the windows that the replay keeps. Training uses random parts of unroll_length "
        "steps, with goals that were achieved later in the window. 0: no hindsight replay.",
        minimum=0,
    )
    her_substitution_probability: float = option(
        0.8, "Probability of replacing a goal.", minimum=0.0, maximum=1.0
    )


def validate_warm_up(
    replay: ReplayConfig, learner: LearnerConfig, unroll_frames: int, learners: int
) -> None:
    """Checks that training begins before the run ends; prints a note if that takes half of it.

    Args:
      replay: options of the replay.
      learner: options of the learner.
      unroll_frames: environment frames of one unroll.
      learners: how many train together, each with its own replay.

    Raises:
      UserError: training does not begin before that.
    """
    warm_up = replay.replay_buffer_min_size * unroll_frames * learners
    total = learner.total_environment_frames
    if 2 * warm_up < total:
        return
    text = (
        f"training begins after --replay_buffer_min_size={replay.replay_buffer_min_size} unrolls "
        f"of {unroll_frames} frames{f' for each of {learners} learners' if learners > 1 else ''} = "
        f"{warm_up:,} frames, and --total_environment_frames={total:,}. Lower the former or raise "
        "the latter."
    )
    if warm_up >= total:
        raise UserError(f"The run would end before training begins: {text}")
    print(f"note: Training begins late in the run: {text}", file=sys.stderr)
