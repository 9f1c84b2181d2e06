"""Actor-critic networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from seed_rl.common.distributions.base import ParametricDistribution
from seed_rl.common.nest import Nest
from seed_rl.common.networks.action_mask import masked, with_mask, without_mask
from seed_rl.common.networks.encoders import ImageEncoder, VectorEncoder
from seed_rl.common.networks.layers import Dense, variance_scaling
from seed_rl.common.networks.recurrent import StackedLSTM
from seed_rl.common.networks.space_encoder import SpaceEncoder
from seed_rl.common.types import EnvOutput


class AgentOutput(NamedTuple):
    """A network's output for each step.

    Attributes:
      action: nest of [..., *event], sampled from the policy.
      policy_logits: <float32>[..., param_size], parameters of the action distribution.
      baseline: <float32>[...], the value estimate.
    """

    action: Any
    policy_logits: Any
    baseline: Any


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


class ActorCritic(tf.Module):
    """Encoder, LSTM (or none), then policy and value heads."""

    def __init__(
        self,
        parametric_action_distribution: ParametricDistribution,
        encoder: Any,
        lstm_sizes: Sequence[int] = (),
        prev_action_and_reward: bool = False,
        compute_dtype: tf.DType | str = tf.float32,
        name: str = "actor_critic",
    ):
        """Creates layers; the first call creates their variables.

        Args:
          parametric_action_distribution: distribution that the policy head parametrizes.
          encoder: `ImageEncoder`, `VectorEncoder` or a module with the same methods.
          lstm_sizes: units of each LSTM layer.
          prev_action_and_reward: whether to append the previous action and its reward, clipped to
            [-1, 1], to the features (as IMPALA does before its LSTM).
          compute_dtype: type of the matrix products; variables, policy logits and baseline are
            always float32.
          name: name of the module.
        """
        super().__init__(name=name)
        self._distribution = parametric_action_distribution
        self._prev_action_and_reward = prev_action_and_reward
        self.encoder = encoder
        self._core = StackedLSTM(lstm_sizes, compute_dtype, name="core")
        # Small initial logits: the first policies are close to uniform.
        self._policy = Dense(
            parametric_action_distribution.param_size,
            kernel_initializer=variance_scaling(0.01),
            name="policy_logits",
        )
        self._baseline = Dense(1, name="baseline")

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

    def get_action(self, *args: Any, **kwargs: Any) -> tuple[AgentOutput, State]:
        """The same as `__call__`, for existing code that calls it by this name."""
        return self(*args, **kwargs)

    def __call__(
        self,
        prev_actions: Nest,
        env_outputs: EnvOutput,
        core_state: State,
        unroll: bool = False,
        is_training: bool = False,
    ) -> tuple[AgentOutput, State]:
        """Runs one step, or all steps of an unroll.

        Args:
          prev_actions: nest of [batch, ...], or of [time, batch, ...] if `unroll`.
          env_outputs: `EnvOutput`, or any tuple of its five fields, of [batch, ...] or
            [time, batch, ...]; `done` resets the state before its step.
          core_state: state before the first step; () if `stacked` has taken it.
          unroll: whether there is a time dimension.
          is_training: ignored.

        Returns:
          (AgentOutput, state after the last step).
        """
        del is_training
        env_outputs = EnvOutput(*env_outputs)
        done = env_outputs.done
        lstm_state, encoder_state = core_state or self._parts(0)
        if not core_state and tf.nest.flatten(encoder_state):
            encoder_state = ()
        observation = without_mask(env_outputs.observation)
        features, encoder_state = self.encoder(observation, encoder_state, done, unroll)
        if self._prev_action_and_reward:
            reward = tf.clip_by_value(env_outputs.reward, -1.0, 1.0)[..., tf.newaxis]
            action = self._distribution.action_features(prev_actions)
            features = tf.concat(
                [features, *(tf.cast(x, features.dtype) for x in (reward, action))], axis=-1
            )
        features, lstm_state = self._core(features, lstm_state, done, unroll)
        new_state = AgentState(lstm_state, encoder_state) if core_state else ()
        return self._heads(features, env_outputs.observation), new_state

    def _heads(self, features: tf.Tensor, observation: Nest) -> AgentOutput:
        """The outputs for features [..., n]; `observation` may have a mask of actions."""
        policy_logits = masked(self._policy(features), observation)
        baseline = tf.squeeze(self._baseline(features), axis=-1)
        return AgentOutput(self._distribution.sample(policy_logits), policy_logits, baseline)


class ConvAgent(ActorCritic):
    """Actor-critic for images, with frames stacked on the learner."""

    def __init__(
        self,
        parametric_action_distribution: ParametricDistribution,
        observation_shape: Sequence[int],
        torso: str = "nature",
        lstm_size: int | Sequence[int] = 0,
        stack_size: int = 1,
        compute_dtype: tf.DType | str = tf.float32,
        observation_dtype: tf.DType = tf.uint8,
    ):
        """Creates layers; the first call creates their variables.

        Args:
          parametric_action_distribution: distribution that the policy head parametrizes.
          observation_shape: [height, width, channels] of one frame.
          torso: "nature", "impala_shallow" or "impala_deep".
          lstm_size: units of the LSTM, or of each of several; 0 for none. With an LSTM, the
            previous action and reward are inputs too, as in IMPALA.
          stack_size: number of frames in a stack.
          compute_dtype: type of the matrix products and convolutions.
          observation_dtype: type of the frames.
        """
        lstm_sizes = (lstm_size,) if isinstance(lstm_size, int) else tuple(lstm_size)
        super().__init__(
            parametric_action_distribution,
            ImageEncoder(observation_shape, torso, stack_size, observation_dtype, compute_dtype),
            lstm_sizes=lstm_sizes,
            prev_action_and_reward=any(lstm_sizes),
            compute_dtype=compute_dtype,
            name="conv_agent",
        )


class SpaceAgent(ActorCritic):
    """Actor-critic for any Gymnasium observation space: images, vectors, choices and nests."""

    def __init__(
        self,
        parametric_action_distribution: ParametricDistribution,
        observation_space: Any,
        mlp_sizes: Sequence[int] = (64, 64),
        lstm_sizes: Sequence[int] = (),
        torso: str = "nature",
        stack_size: int = 1,
        compute_dtype: tf.DType | str = tf.float32,
        mlp_activation: str = "relu",
    ):
        """Creates layers; the first call creates their variables.

        Args:
          parametric_action_distribution: distribution that the policy head parametrizes.
          observation_space: observation space of one environment.
          mlp_sizes: units of each dense layer, for all inputs but images.
          lstm_sizes: units of each LSTM layer, on the features of all inputs.
          torso: torso for images.
          stack_size: number of images in a stack.
          compute_dtype: type of the arithmetic.
          mlp_activation: "relu" or "tanh", for the dense layers.
        """
        super().__init__(
            parametric_action_distribution,
            SpaceEncoder(
                observation_space, mlp_sizes, torso, stack_size, compute_dtype, mlp_activation
            ),
            lstm_sizes=lstm_sizes,
            prev_action_and_reward=any(lstm_sizes),
            compute_dtype=compute_dtype,
            name="space_agent",
        )


class MLPandLSTM(ActorCritic):
    """Actor-critic for vectors or nests of them: an MLP with ReLU, then LSTM layers."""

    def __init__(
        self,
        parametric_action_distribution: ParametricDistribution,
        mlp_sizes: Sequence[int],
        lstm_sizes: Sequence[int],
    ):
        """Creates layers; the first call creates their variables.

        Args:
          parametric_action_distribution: distribution that the policy head parametrizes.
          mlp_sizes: units of each dense layer.
          lstm_sizes: units of each LSTM layer.
        """
        super().__init__(
            parametric_action_distribution,
            VectorEncoder(mlp_sizes),
            lstm_sizes=lstm_sizes,
            name="mlp_and_lstm",
        )
