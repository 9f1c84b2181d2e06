"""Networks for Atari."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from seed_rl.agents.r2d2.networks import AgentOutput, AgentState, DuelingLSTM
from seed_rl.atari.packed_frames import (
    STACKING_STATE_DTYPE,
    initial_frame_stacking_state,
    stack_frames,
)
from seed_rl.common.distributions.base import ParametricDistribution
from seed_rl.common.networks.actor_critic import ConvAgent
from seed_rl.common.networks.encoders import ImageEncoder
from seed_rl.common.types import EnvOutput

__all__ = [
    "STACKING_STATE_DTYPE",
    "AgentOutput",
    "AgentState",
    "AtariVTraceNet",
    "DuelingLSTMDQNNet",
    "initial_frame_stacking_state",
    "stack_frames",
]


class AtariVTraceNet(ConvAgent):
    """Actor-critic network for V-trace on stacked grey frames."""

    def __init__(
        self,
        parametric_action_distribution: ParametricDistribution,
        observation_shape: Sequence[int] = (84, 84, 1),
        torso: str = "nature",
        lstm_size: int = 0,
        stack_size: int = 4,
        compute_dtype: tf.DType | str = tf.float32,
    ):
        """As `ConvAgent`, with defaults for Atari (Mnih et al. 2015)."""
        super().__init__(
            parametric_action_distribution,
            observation_shape,
            torso,
            lstm_size,
            stack_size,
            compute_dtype,
        )


class DuelingLSTMDQNNet(DuelingLSTM):
    """R2D2's network (Kapturowski et al. 2019), with the call form of existing programs."""

    def __init__(self, num_actions: int, observation_shape: Sequence[int], stack_size: int = 1):
        """Creates the layers; their variables are created by the first call.

        Args:
          num_actions: actions are [0, num_actions).
          observation_shape: [height, width, channels] of one uint8 frame.
          stack_size: number of stacked frames.
        """
        super().__init__(num_actions, ImageEncoder(observation_shape, "nature", stack_size))

    def __call__(  # type: ignore[override]
        self,
        input_: tuple[tf.Tensor, EnvOutput],
        agent_state: AgentState,
        unroll: bool = False,
        is_training: bool = False,
    ) -> tuple[Any, AgentState]:
        """As `DuelingLSTM`; `input_` is (prev_actions, env_outputs)."""
        return super().__call__(*input_, agent_state, unroll, is_training)
