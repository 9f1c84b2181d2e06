"""Options of PQN."""

from __future__ import annotations

import dataclasses

from seed_rl.common.config.learner_config import RewardConfig
from seed_rl.common.config.options import Checked, option


@dataclasses.dataclass(frozen=True)
class PQNConfig(RewardConfig):
    """PQN: acting and learning."""

    trace_lambda: float = option(
        0.65,
        "Lambda of the targets: 0 looks one reward ahead, 1 looks ahead to the end of the unroll.",
        minimum=0.0,
        maximum=1.0,
    )
    initial_epsilon: float = option(
        1.0, "Probability of a random action when training begins.", minimum=0.0, maximum=1.0
    )
    final_epsilon: float = option(
        0.001, "Probability of a random action after exploration.", minimum=0.0, maximum=1.0
    )
    exploration_fraction: float = option(
        0.1,
        "Fraction of total_environment_frames during which epsilon falls linearly from "
        "initial_epsilon to final_epsilon.",
        minimum=0.0,
        maximum=1.0,
    )
    eval_epsilon: float = option(
        1e-3, "Probability of a random action during evaluation.", minimum=0.0, maximum=1.0
    )
    reward_scaling: float = option(1.0, "Factor of rewards, after clipping.", minimum=0.0)


@dataclasses.dataclass(frozen=True)
class NormConfig(Checked):
    """Network: normalization of its layers."""

    layer_norm: bool = option(
        True,
        "Whether the outputs of each layer are normalized before its activation (LayerNorm), which "
        "stands in for a target network.",
        network=True,
    )
