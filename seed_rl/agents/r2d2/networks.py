"""Dueling recurrent Q-networks."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
from gymnasium import spaces

from seed_rl.agents.r2d2.config import QNetworkConfig
from seed_rl.common.networks.action_mask import masked, without_mask
from seed_rl.common.networks.encoders import ImageEncoder
from seed_rl.common.networks.layers import Dense, variance_scaling
from seed_rl.common.networks.recurrent import StackedLSTM
from seed_rl.common.networks.space_encoder import SpaceEncoder, is_image
from seed_rl.common.types import EnvOutput


class AgentOutput(NamedTuple):
    """Output of a network for each step.

    Attributes:
      action: <int32>[...] the greedy action.
      q_values: <float32>[..., num_actions].
    """

    action: Any
    q_values: Any


class AgentState(NamedTuple):
    """Recurrent state of a network.

    Attributes:
      core_state: state of the LSTM.
      frame_stacking_state: state of the encoder: the last few frames.
    """

    core_state: Any
    frame_stacking_state: Any


class DuelingLSTM(tf.Module):
    """Encoder, LSTM, then the dueling heads of Wang et al. 2016.

    The LSTM also sees the previous action (one-hot) and its reward, squashed by tanh.
    """

    def __init__(
        self,
        num_actions: int,
        encoder: Any,
        lstm_size: int = 512,
        head_size: int = 512,
        compute_dtype: tf.DType | str = tf.float32,
        name: str = "dueling_lstm",
    ):
        """Creates the layers; the first call creates the variables.

        Args:
          num_actions: actions are [0, num_actions).
          encoder: `ImageEncoder`, `SpaceEncoder` or the like.
          lstm_size: units of the LSTM; 0 for none.
          head_size: units of the hidden layer of each head.
          compute_dtype: of the matrix products; variables and Q-values are float32 in any case.
          name: of the module.
        """
        super().__init__(name=name)
        self._num_actions = num_actions
        self.encoder = encoder
        self._core = StackedLSTM((lstm_size,), compute_dtype, name="core")
        self._value = _head(head_size, 1, compute_dtype, "value")
        self._advantage = _head(head_size, num_actions, compute_dtype, "advantage")

    def initial_state(self, batch_size: int | tf.Tensor) -> AgentState:
        """State before an environment's first step."""
        return AgentState(
            self._core.initial_state(batch_size), self.encoder.initial_state(batch_size)
        )

    def get_action(self, *args: Any, **kwargs: Any) -> tuple[AgentOutput, AgentState]:
        """Same as a call, under the name that existing inference code uses."""
        return self(*args, **kwargs)

    def __call__(
        self,
        prev_actions: tf.Tensor,
        env_outputs: EnvOutput,
        agent_state: AgentState,
        unroll: bool = False,
        is_training: bool = False,
    ) -> tuple[AgentOutput, AgentState]:
        """Runs one step, or all steps of an unroll.

        Args:
          prev_actions: <int>[batch], or [time, batch] if `unroll`.
          env_outputs: `EnvOutput`, or any tuple of its five fields, of [batch, ...] or
            [time, batch, ...]; `done` resets the state before its step.
          agent_state: before the first step.
          unroll: whether there is a time dimension.
          is_training: has no effect here.

        Returns:
          (AgentOutput, state after the last step).
        """
        del is_training
        env_outputs = EnvOutput(*env_outputs)
        done = env_outputs.done
        core_state, encoder_state = agent_state
        observation = without_mask(env_outputs.observation)
        features, encoder_state = self.encoder(observation, encoder_state, done, unroll)
        reward = tf.tanh(env_outputs.reward)[..., tf.newaxis]
        action = tf.one_hot(prev_actions, self._num_actions)
        features = tf.concat(
            [features, tf.cast(reward, features.dtype), tf.cast(action, features.dtype)], axis=-1
        )
        features, core_state = self._core(features, core_state, done, unroll)
        value, advantage = (_apply(head, features) for head in (self._value, self._advantage))
        q_values = value + advantage - tf.reduce_mean(advantage, axis=-1, keepdims=True)
        q_values = masked(q_values, env_outputs.observation)
        greedy = tf.argmax(q_values, axis=-1, output_type=tf.int32)
        return AgentOutput(greedy, q_values), AgentState(core_state, encoder_state)


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
    space = without_mask(observation_space)
    options = (config.torso, config.stack_size)
    encoder: Any
    if is_image(space):
        encoder = ImageEncoder(
            space.shape, *options, tf.as_dtype(space.dtype), compute_dtype=config.compute_dtype
        )
    else:
        encoder = SpaceEncoder(space, config.mlp_sizes, *options, config.compute_dtype)
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


def _apply(head: tuple[Dense, Dense], features: tf.Tensor) -> tf.Tensor:
    return head[1](head[0](features))
