"""Options of the replay (no TensorFlow)."""

from __future__ import annotations

import dataclasses

from seed_rl.common.config.options import option
from seed_rl.common.errors import UserError

SAVE_NEVER, SAVE_AT_STOP, SAVE_ALWAYS = "never", "stop", "always"


@dataclasses.dataclass(frozen=True)
class ReplayConfig:
    """Replay. The defaults are those of the R2D2 paper; the ratio is that of SEED RL."""

    replay_buffer_size: int = option(
        100_000, "Unrolls that the replay holds; the oldest go first.", minimum=1
    )
    replay_buffer_min_size: int = option(
        5_000, "Unrolls that must be in the replay before training starts.", minimum=1
    )
    replay_ratio: float = option(
        0.75,
        "How many times each unroll is sampled on average: unrolls sampled per unroll inserted. "
        "Whichever of acting and training runs ahead is made to wait. 0: nobody waits.",
        minimum=0,
    )
    replay_ratio_slack: int = option(
        256,
        "By how many sampled unrolls acting or training may run ahead before it is made to wait; "
        "at least one batch.",
        minimum=1,
    )
    priority_exponent: float = option(
        0.9,
        "Unrolls are sampled in proportion to priority ** priority_exponent. 0: all alike.",
        minimum=0,
    )
    importance_sampling_exponent: float = option(
        0.6,
        "Exponent (beta) of the weights that make up for sampling by priority. 0: no weights; "
        "1: made up for in full.",
        minimum=0,
        maximum=1,
    )
    replay_stratified: bool = option(
        False,
        "Whether a batch takes one unroll from each of batch_size equal parts of the sum of "
        "priorities, which makes batches more alike, instead of drawing each independently.",
    )
    replay_compression_level: int = option(
        1,
        "Level of zstd, 1 to 19; higher is smaller and slower to insert. 0: store as it is.",
        minimum=0,
        maximum=19,
    )
    replay_memory_gb: float | None = option(
        None,
        "Gigabytes (1e9 bytes) of memory that the replay may use. When it is reached, the oldest "
        "unrolls go before the replay is full. Not given: 80 % of what is available at the start.",
        minimum=0,
    )
    replay_assumed_compression: float = option(
        30.0,
        "How many times smaller images are assumed to get when the replay's memory is projected "
        "at the start (Atari frames: 50 to 260). 1: assume no compression.",
        minimum=1,
    )
    save_replay: str = option(
        SAVE_AT_STOP,
        "Which checkpoints hold the replay: none, the one written when a run stops or ends, or "
        "all. Without it, a resumed run fills the replay again before training continues.",
        choices=(SAVE_NEVER, SAVE_AT_STOP, SAVE_ALWAYS),
    )

    def __post_init__(self) -> None:
        if self.replay_buffer_min_size > self.replay_buffer_size:
            raise UserError(
                f"Training would never start: --replay_buffer_min_size="
                f"{self.replay_buffer_min_size} is larger than --replay_buffer_size="
                f"{self.replay_buffer_size}. Lower the former or raise the latter."
            )
