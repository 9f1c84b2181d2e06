"""Dueling recurrent Q-networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from gymnasium import spaces

from seed_rl.agents.r2d2.config import QNetworkConfig
from seed_rl.common.nest import Nest
from seed_rl.common.networks.action_mask import masked
from seed_rl.common.networks.layers import Dense, variance_scaling
from seed_rl.common.networks.recurrent_network import RecurrentNetwork
from seed_rl.common.networks.space_encoder import SpaceEncoder


class AgentOutput(NamedTuple):
    """Output of a network for each step.

    Attributes:
      action: <int32>[...] the greedy action.
      q_values: <float32>[..., num_actions].
    """

    action: Any
    q_values: Any


class DuelingLSTM(RecurrentNetwork):
    """Encoder, LSTM, then the dueling heads of Wang et al. 2016.

    The LSTM also sees the previous action (one-hot) and its reward, squashed by tanh.
    """

    def __init__(
        self,
        num_actions: int,
        encoder: Any,
        lstm_size: int,
        head_size: int,
        compute_dtype: tf.DType | str = tf.float32,
    ):
        """Creates the layers; the first call creates the variables.

        Args:
          num_actions: actions are [0, num_actions).
          encoder: see `RecurrentNetwork`.
          lstm_size: units of the LSTM; 0 for none.
          head_size: units of the hidden layer of each head.
          compute_dtype: of the matrix products; variables and Q-values are float32 in any case.
        """
        super().__init__(encoder, (lstm_size,), compute_dtype)
        self._num_actions = num_actions
        self._value = _head(head_size, 1, compute_dtype, "value")
        self._advantage = _head(head_size, num_actions, compute_dtype, "advantage")

    def _previous(self, prev_actions: tf.Tensor, reward: tf.Tensor) -> Sequence[tf.Tensor]:
        return tf.tanh(reward)[..., tf.newaxis], tf.one_hot(prev_actions, self._num_actions)

    def _heads(self, features: tf.Tensor, observation: Nest) -> AgentOutput:
        value, advantage = (
            last(hidden(features)) for hidden, last in (self._value, self._advantage)
        )
        q_values = value + advantage - tf.reduce_mean(advantage, axis=-1, keepdims=True)
        q_values = masked(q_values, observation)
        return AgentOutput(tf.argmax(q_values, axis=-1, output_type=tf.int32), q_values)


def create_network(
    observation_space: spaces.Space[Any], num_actions: int, config: QNetworkConfig | None = None
) -> DuelingLSTM:
    """Creates a network with convolutions for images, dense layers for vectors, both for nests.

    Args:
      observation_space: of one environment.
      num_actions: see `DuelingLSTM`.
      config: options.
    """
    config = config or QNetworkConfig()
    encoder = SpaceEncoder(
        observation_space,
        config.mlp_sizes,
        config.torso,
        config.stack_size,
        config.compute_dtype,
    )
    return DuelingLSTM(
        num_actions, encoder, config.lstm_size, config.head_size, config.compute_dtype
    )


def _head(
    hidden: int, outputs: int, compute_dtype: tf.DType | str, name: str
) -> tuple[Dense, Dense]:
    return (
        Dense(hidden, tf.nn.relu, variance_scaling(2.0), compute_dtype, f"{name}_hidden"),
        # Small at first: targets start near 0, and no action is strongly preferred.
        Dense(outputs, kernel_initializer=variance_scaling(0.01), name=name),
    )
