"""Options of the V-trace networks (no TensorFlow here)."""

from __future__ import annotations

import dataclasses

from seed_rl.common.config.options import option

TORSOS = ("nature", "impala_shallow", "impala_deep")
COMPUTE_DTYPES = ("float32", "bfloat16")
ACTIVATIONS = ("relu", "tanh")


@dataclasses.dataclass(frozen=True)
class TorsoConfig:
    """Network for images: convolutions."""

    torso: str = option(
        "nature",
        "Convolutions: of the Nature DQN (32-64-64-512), or the shallow or deep ones of IMPALA.",
        choices=TORSOS,
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


def _lstm_sizes() -> tuple[int, ...]:
    """The option of every V-trace network."""
    sizes: tuple[int, ...] = option(
        (),
        "Units of the LSTM, or of several on top of each other (256,128), after all other layers; "
        "it also sees the last action and reward. 0 or not given: none.",
        aliases=("lstm_size",),
        minimum=0,
        shared=True,
    )
    return sizes


@dataclasses.dataclass(frozen=True)
class ConvNetworkConfig(TorsoConfig):
    """Network for images."""

    lstm_sizes: tuple[int, ...] = _lstm_sizes()


@dataclasses.dataclass(frozen=True)
class MLPNetworkConfig:
    """Network for vectors."""

    mlp_sizes: tuple[int, ...] = option(
        (64, 64), "Units of the dense layers for observations that are not images.", minimum=1
    )
    mlp_activation: str = option("relu", "Activation of these layers.", choices=ACTIVATIONS)
    lstm_sizes: tuple[int, ...] = _lstm_sizes()
