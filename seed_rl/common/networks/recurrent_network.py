"""What networks with an LSTM share, whatever they predict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from seed_rl.common.acting.action_masks import with_mask, without_mask
from seed_rl.common.nest import Nest
from seed_rl.common.networks.recurrent import StackedLSTM
from seed_rl.common.types import EnvOutput


class AgentState(NamedTuple):
    """A network's state between steps.

    Attributes:
      core_state: state of the recurrent layers.
      frame_stacking_state: state of the encoder: the last few frames.
    """

    core_state: Any
    frame_stacking_state: Any


State = AgentState | tuple[()]
"""() for a network without memory."""


class RecurrentNetwork(tf.Module):
    """Encoder, then LSTM layers (or none), then the heads of a subclass."""

    def __init__(self, encoder: Any, lstm_sizes: Sequence[int], compute_dtype: tf.DType | str):
        """Creates layers; the first call creates their variables.

        Args:
          encoder: `ImageEncoder`, `VectorEncoder`, `SpaceEncoder` or a module with their methods.
          lstm_sizes: units of each LSTM layer; 0: no layer.
          compute_dtype: type of the matrix products.
        """
        super().__init__()
        self.encoder = encoder
        self._core = StackedLSTM(lstm_sizes, compute_dtype, name="core")

    def initial_state(self, batch_size: int | tf.Tensor) -> State:
        """State at the start of an environment's life."""
        state = self._parts(batch_size)
        return state if tf.nest.flatten(state) else ()

    def _parts(self, batch_size: int | tf.Tensor) -> AgentState:
        return AgentState(
            self._core.initial_state(batch_size), self.encoder.initial_state(batch_size)
        )

    def stacked(self, env_outputs: EnvOutput, core_state: State) -> tuple[EnvOutput, State]:
        """Stacks the frames of unrolls, so that their steps can be shuffled.

        Args:
          env_outputs: of [time, batch, ...].
          core_state: before the first step.

        Returns:
          (`env_outputs` with stacks, which calls with the rest of the state take; that rest: () if
          the network has no other memory).
        """
        lstm_state, encoder_state = core_state or self._parts(0)
        if not tf.nest.flatten(encoder_state):
            return env_outputs, core_state
        whole = env_outputs.observation
        observation = self.encoder.stacked(without_mask(whole), encoder_state, env_outputs.done)
        rest = AgentState(lstm_state, ()) if tf.nest.flatten(lstm_state) else ()
        return env_outputs._replace(observation=with_mask(observation, whole)), rest

    def get_action(self, *args: Any, **kwargs: Any) -> tuple[Any, State]:
        """The same as `__call__`, for existing code that calls it by this name."""
        return self(*args, **kwargs)

    def __call__(
        self,
        prev_actions: Nest,
        env_outputs: EnvOutput,
        core_state: State,
        unroll: bool = False,
        is_training: bool = False,
    ) -> tuple[Any, State]:
        """Runs one step, or all steps of an unroll.

        Args:
          prev_actions: nest of [batch, ...], or of [time, batch, ...] if `unroll`.
          env_outputs: `EnvOutput`, or any tuple of its five fields, of [batch, ...] or
            [time, batch, ...]; `done` resets the state before its step.
          core_state: state before the first step; () if `stacked` has taken it.
          unroll: whether there is a time dimension.
          is_training: ignored.

        Returns:
          (output of the heads, state after the last step).
        """
        del is_training
        env_outputs = EnvOutput(*env_outputs)
        done = env_outputs.done
        lstm_state, encoder_state = core_state or self._parts(0)
        if not core_state and tf.nest.flatten(encoder_state):
            encoder_state = ()
        observation = without_mask(env_outputs.observation)
        features, encoder_state = self.encoder(observation, encoder_state, done, unroll)
        previous = self._previous(prev_actions, env_outputs.reward)
        if previous:
            previous = [tf.cast(part, features.dtype) for part in previous]
            features = tf.concat([features, *previous], axis=-1)
        features, lstm_state = self._core(features, lstm_state, done, unroll)
        new_state = AgentState(lstm_state, encoder_state) if core_state else ()
        return self._heads(features, env_outputs.observation), new_state

    def _previous(self, prev_actions: Nest, reward: tf.Tensor) -> Sequence[tf.Tensor]:
        """What the LSTM sees of the previous actions and their reward [...]: tensors [..., n]."""
        raise NotImplementedError

    def _heads(self, features: tf.Tensor, observation: Nest) -> Any:
        """The outputs for features [..., n]; `observation` may have a mask of actions."""
        raise NotImplementedError
