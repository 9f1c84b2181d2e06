"""Networks for Atari."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from seed_rl.agents.vtrace.networks import AgentState, ConvAgent
from seed_rl.common.frame_stacking import initial_frame_stacking_state, stack_frames
from seed_rl.common.parametric_distribution import ParametricDistribution

__all__ = ["AgentState", "AtariVTraceNet", "initial_frame_stacking_state", "stack_frames"]


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
