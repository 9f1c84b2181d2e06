"""Options of the V-trace networks (no TensorFlow here)."""

from __future__ import annotations

import dataclasses

from seed_rl.common.config import option

TORSOS = ("nature", "impala_shallow", "impala_deep")
COMPUTE_DTYPES = ("float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class ConvNetworkConfig:
    """Network for images."""

    torso: str = option(
        "nature",
        "Convolutions: of the Nature DQN (32-64-64-512), or the shallow or deep ones of IMPALA.",
        choices=TORSOS,
    )
    lstm_size: int = option(
        0,
        "Units of the LSTM after the torso, which also sees the last action and reward; 0: none.",
        minimum=0,
    )
    stack_size: int = option(
        4, "Frames that the learner stacks for the network; 1: only the newest.", minimum=1
    )
    compute_dtype: str = option(
        "float32",
        "Type of the arithmetic; bfloat16 is faster where the hardware has it. Weights stay "
        "float32.",
        choices=COMPUTE_DTYPES,
    )


@dataclasses.dataclass(frozen=True)
class MLPNetworkConfig:
    """Network for vectors."""

    mlp_sizes: tuple[int, ...] = option((64, 64), "Units of the dense layers.")
    lstm_sizes: tuple[int, ...] = option((), "Units of the LSTM layers after them; none if empty.")
