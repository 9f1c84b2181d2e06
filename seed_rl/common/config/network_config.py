"""Options of the networks of all agents."""

from __future__ import annotations

import dataclasses

from seed_rl.common.config.options import Checked, option, option_of

TORSOS = ("nature", "impala_shallow", "impala_deep")
COMPUTE_DTYPES = ("float32", "bfloat16", "auto")
ACTIVATIONS = ("relu", "tanh")


@dataclasses.dataclass(frozen=True)
class TorsoConfig(Checked):
    """Network for images: convolutions."""

    torso: str = option(
        "nature",
        "Convolutional torso: Nature DQN (32-64-64-512), shallow IMPALA or deep IMPALA.",
        choices=TORSOS,
        network=True,
    )
    stack_size: int = option(
        4,
        "Frames stacked for the network, by the learner; 1: no stacking.",
        minimum=1,
        network=True,
    )
    compute_dtype: str = option(
        "float32",
        "Type of the network's computations; weights remain float32. auto: bfloat16, which is "
        "faster, where the hardware has instructions for it, and float32 elsewhere.",
        choices=COMPUTE_DTYPES,
    )


@dataclasses.dataclass(frozen=True)
class ObservationConfig(Checked):
    """Network: its input."""

    normalize_observations: bool = option(
        False,
        "Whether observations are shifted and scaled to mean 0 and standard deviation 1, by "
        "statistics of all observations trained on, and clipped to [-5, 5] (ppo: [-10, 10]). "
        "Images are not.",
        network=True,
    )


@dataclasses.dataclass(frozen=True)
class ConvNetworkConfig(TorsoConfig):
    """Network: convolutions for images; number type and LSTM."""

    lstm_sizes: tuple[int, ...] = option(
        (),
        "Units of the LSTM, or of several stacked ones (256,128); 0 or empty: no LSTM. Its input "
        "includes the last action and reward; in sac only the action; in ppo neither, unless "
        "there are images.",
        aliases=("lstm_size",),
        minimum=0,
        shared=True,
        network=True,
    )


@dataclasses.dataclass(frozen=True)
class MLPNetworkConfig(Checked):
    """Network for vectors."""

    mlp_sizes: tuple[int, ...] = option(
        (64, 64), "Units of the dense layers for non-image observations.", minimum=1, network=True
    )
    mlp_activation: str = option(
        "relu", "Activation of the dense layers.", choices=ACTIVATIONS, network=True
    )
    lstm_sizes: tuple[int, ...] = option_of(ConvNetworkConfig, "lstm_sizes")
