"""Networks for DeepMind Lab."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from seed_rl.common.distributions.discrete import categorical_distribution
from seed_rl.common.nest import Nest
from seed_rl.common.networks.actor_critic import AgentOutput, AgentState, ConvAgent
from seed_rl.common.types import EnvOutput

__all__ = ["AgentOutput", "ImpalaDeep"]

FRAME_SHAPE = (72, 96, 3)


class ImpalaDeep(ConvAgent):
    """The deep network of Espeholt et al. 2018, fig. 3, with an LSTM of 256 units.

    Observations are frames <uint8>[72, 96, 3], or nests that contain one. There is no language
    channel: instructions are ignored.
    """

    def __init__(self, num_actions: int, compute_dtype: tf.DType | str = tf.float32):
        """Creates the layers; their variables are created by the first call.

        Args:
          num_actions: size of the action set.
          compute_dtype: dtype of matrix products and convolutions.
        """
        super().__init__(
            categorical_distribution(num_actions, tf.int64),
            FRAME_SHAPE,
            torso="impala_deep",
            lstm_size=256,
            compute_dtype=compute_dtype,
        )

    def __call__(
        self,
        prev_actions: Nest,
        env_outputs: EnvOutput,
        core_state: AgentState,
        unroll: bool = False,
        is_training: bool = False,
    ) -> tuple[AgentOutput, AgentState]:
        """As `ActorCritic`."""
        env_outputs = EnvOutput(*env_outputs)
        env_outputs = env_outputs._replace(observation=_frame(env_outputs.observation))
        return super().__call__(prev_actions, env_outputs, core_state, unroll, is_training)


def _frame(observation: Nest) -> Any:
    leaves = tf.nest.flatten(observation)
    return next(leaf for leaf in leaves if tuple(leaf.shape[-3:]) == FRAME_SHAPE)
