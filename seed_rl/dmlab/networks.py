"""Networks for DeepMind Lab."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from gymnasium import spaces

from seed_rl.common.config.network_config import ConvNetworkConfig
from seed_rl.common.distributions.base import ParametricDistribution
from seed_rl.common.distributions.discrete import categorical_distribution
from seed_rl.common.nest import Nest
from seed_rl.common.networks.actor_critic import ActorCritic, AgentOutput
from seed_rl.common.networks.encoders import ImageEncoder
from seed_rl.common.networks.layers import Layer
from seed_rl.common.networks.recurrent import LSTM
from seed_rl.dmlab.environment import FRAME, INSTRUCTION
from seed_rl.dmlab.instructions import NUM_BUCKETS

__all__ = ["AgentOutput", "ImpalaDeep", "InstructionEncoder", "LabNetwork", "create_network"]

FRAME_SHAPE = (72, 96, 3)


class InstructionEncoder(Layer):
    """Reads hashed words with an LSTM (Espeholt et al. 2018, fig. 3)."""

    def __init__(self, embedding_size: int = 20, lstm_size: int = 64):
        """Creates layers without variables.

        Args:
          embedding_size: numbers that represent a word.
          lstm_size: units of the LSTM.
        """
        super().__init__(name="instruction_encoder")
        self._embedding_size = embedding_size
        self._lstm = LSTM(lstm_size)
        self.embeddings: tf.Variable | None = None
        self.num_features = lstm_size

    def __call__(self, words: tf.Tensor) -> tf.Tensor:
        """<int32>[..., length] of `instructions.encode` -> <float32>[..., num_features].

        The features are the LSTM's output after the last word, zeros if there is none.
        """
        if self.embeddings is None:
            self.embeddings = self.add_variable(
                "embeddings", lambda: tf.random.normal([NUM_BUCKETS, self._embedding_size])
            )
        leading, length = tf.shape(words)[:-1], words.shape[-1]
        rows = tf.transpose(tf.reshape(words, [-1, length]))
        is_word = rows > 0
        # The variable of places without a word gets no gradient: their outputs are not used.
        embedded = tf.gather(self.embeddings, tf.maximum(rows - 1, 0))
        never = tf.zeros_like(is_word)
        state = self._lstm.initial_state(tf.shape(rows)[1])
        outputs, _ = self._lstm(embedded, state, never, unroll=True)
        following = tf.concat([is_word[1:], never[:1]], axis=0)
        is_last = tf.cast(is_word & ~following, tf.float32)
        features = tf.einsum("wrf,wr->rf", outputs, is_last)
        return tf.reshape(features, tf.concat([leading, [self.num_features]], axis=0))


class LabEncoder(tf.Module):
    """Encodes frames, and beside them instructions."""

    def __init__(self, image: ImageEncoder, frame_shape: Sequence[int], instructions: bool):
        """Takes the encoder of frames.

        Args:
          image: encoder of the frames.
          frame_shape: [height, width, channels] of a frame.
          instructions: whether observations have instructions to read.
        """
        super().__init__(name="lab_encoder")
        self._frame_shape = tuple(frame_shape)
        self._image = image
        self._instruction = InstructionEncoder() if instructions else None

    def initial_state(self, batch_size: int | tf.Tensor) -> Any:
        """As `ImageEncoder`."""
        return self._image.initial_state(batch_size)

    def __call__(
        self, observation: Nest, state: Any, done: tf.Tensor, unroll: bool = False
    ) -> tuple[tf.Tensor, Any]:
        """As `ImageEncoder`, of a frame or a nest that contains one."""
        features, state = self._image(self._frame(observation), state, done, unroll)
        if self._instruction is None:
            return features, state
        words = self._instruction(observation[INSTRUCTION])
        return tf.concat([features, tf.cast(words, features.dtype)], axis=-1), state

    def _frame(self, observation: Nest) -> Any:
        leaves = tf.nest.flatten(observation)
        return next(leaf for leaf in leaves if tuple(leaf.shape[-3:]) == self._frame_shape)


class LabNetwork(ActorCritic):
    """Convolutions for frames, an LSTM for instructions, and an LSTM on both."""

    def __init__(
        self,
        parametric_action_distribution: ParametricDistribution,
        frame_shape: Sequence[int],
        instructions: bool,
        torso: str,
        lstm_sizes: Sequence[int],
        stack_size: int,
        compute_dtype: tf.DType | str,
    ):
        """Creates layers; the first call creates their variables.

        Args:
          parametric_action_distribution: distribution that the policy head parametrizes.
          frame_shape: [height, width, channels] of a frame.
          instructions: whether observations have instructions to read.
          torso: see `ImageEncoder`.
          lstm_sizes: units of each LSTM layer. With any, the previous action and reward are inputs.
          stack_size: number of frames in a stack.
          compute_dtype: type of matrix products and convolutions.
        """
        image = ImageEncoder(frame_shape, torso, stack_size, tf.uint8, compute_dtype)
        super().__init__(
            parametric_action_distribution,
            LabEncoder(image, frame_shape, instructions),
            lstm_sizes=lstm_sizes,
            prev_action_and_reward=any(lstm_sizes),
            compute_dtype=compute_dtype,
        )


class ImpalaDeep(LabNetwork):
    """The deep network of Espeholt et al. 2018, fig. 3, with an LSTM of 256 units.

    Observations are frames <uint8>[72, 96, 3], or nests that contain one. Instructions are read if
    asked for, else ignored.
    """

    def __init__(
        self,
        num_actions: int,
        compute_dtype: tf.DType | str = tf.float32,
        instructions: bool = False,
    ):
        """Creates the layers; their variables are created by the first call.

        Args:
          num_actions: size of the action set.
          compute_dtype: type of matrix products and convolutions.
          instructions: whether to read those of `DmLab`.
        """
        super().__init__(
            categorical_distribution(num_actions, tf.int64),
            FRAME_SHAPE,
            instructions,
            torso="impala_deep",
            lstm_sizes=(256,),
            stack_size=1,
            compute_dtype=compute_dtype,
        )


def create_network(
    observation_space: spaces.Space[Any],
    distribution: ParametricDistribution,
    config: ConvNetworkConfig,
) -> LabNetwork:
    """The network for observations of `DmLab`, with instructions if they have any."""
    parts = observation_space if isinstance(observation_space, spaces.Dict) else None
    frame = parts[FRAME] if parts else observation_space
    return LabNetwork(
        distribution,
        frame.shape or (),
        parts is not None,
        config.torso,
        config.lstm_sizes,
        config.stack_size,
        config.compute_dtype,
    )
