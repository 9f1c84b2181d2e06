"""Networks for Atari."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from seed_rl.agents.r2d2.networks import AgentOutput, AgentState, DuelingLSTM
from seed_rl.atari.packed_frames import initial_frame_stacking_state, stack_frames
from seed_rl.common.distributions.base import ParametricDistribution
from seed_rl.common.networks.actor_critic import ConvAgent
from seed_rl.common.networks.encoders import ImageEncoder
from seed_rl.common.types import EnvOutput

__all__ = [
    "AgentOutput",
    "AgentState",
    "AtariVTraceNet",
    "DuelingLSTMDQNNet",
    "initial_frame_stacking_state",
    "stack_frames",
]


class AtariVTraceNet(ConvAgent):
    """Actor-critic for V-trace on stacked grey frames."""

    def __init__(
        self,
        parametric_action_distribution: ParametricDistribution,
        observation_shape: Sequence[int] = (84, 84, 1),
        torso: str = "nature",
        lstm_size: int = 0,
        stack_size: int = 4,
        compute_dtype: tf.DType | str = tf.float32,
    ):
        """As `ConvAgent`, with the defaults of Atari (Mnih et al. 2015)."""
        super().__init__(
            parametric_action_distribution,
            observation_shape,
            torso,
            lstm_size,
            stack_size,
            compute_dtype,
        )


class DuelingLSTMDQNNet(DuelingLSTM):
    """The network of R2D2 (Kapturowski et al. 2019), called as in existing programs."""

    def __init__(self, num_actions: int, observation_shape: Sequence[int], stack_size: int = 1):
        """Makes layers; variables come with the first call.

        Args:
          num_actions: actions are [0, num_actions).
          observation_shape: [height, width, channels] of one frame of bytes.
          stack_size: how many frames the network sees at once.
        """
        super().__init__(num_actions, ImageEncoder(observation_shape, "nature", stack_size))

    def __call__(  # type: ignore[override]
        self,
        input_: tuple[tf.Tensor, EnvOutput],
        agent_state: AgentState,
        unroll: bool = False,
        is_training: bool = False,
    ) -> tuple[Any, AgentState]:
        """As `DuelingLSTM`, with `input_` being (prev_actions, env_outputs)."""
        return super().__call__(*input_, agent_state, unroll, is_training)
