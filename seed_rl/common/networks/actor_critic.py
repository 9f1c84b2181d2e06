"""Actor-critic networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from seed_rl.common.distributions.base import ParametricDistribution
from seed_rl.common.nest import Nest
from seed_rl.common.networks.action_mask import masked
from seed_rl.common.networks.encoders import VectorEncoder
from seed_rl.common.networks.layers import Dense, variance_scaling
from seed_rl.common.networks.recurrent_network import RecurrentNetwork


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


class ActorCritic(RecurrentNetwork):
    """Encoder, LSTM (or none), then policy and value heads."""

    def __init__(
        self,
        parametric_action_distribution: ParametricDistribution,
        encoder: Any,
        lstm_sizes: Sequence[int] = (),
        prev_action_and_reward: bool = False,
        compute_dtype: tf.DType | str = tf.float32,
    ):
        """Creates layers; the first call creates their variables.

        Args:
          parametric_action_distribution: distribution that the policy head parametrizes.
          encoder: see `RecurrentNetwork`.
          lstm_sizes: units of each LSTM layer.
          prev_action_and_reward: whether to append the previous action and its reward, clipped to
            [-1, 1], to the features (as IMPALA does before its LSTM).
          compute_dtype: type of the matrix products; variables, policy logits and baseline are
            always float32.
        """
        super().__init__(encoder, lstm_sizes, compute_dtype)
        self._distribution = parametric_action_distribution
        self._prev_action_and_reward = prev_action_and_reward
        # Small initial logits: the first policies are close to uniform.
        self._policy = Dense(
            parametric_action_distribution.param_size,
            kernel_initializer=variance_scaling(0.01),
            name="policy_logits",
        )
        self._baseline = Dense(1, name="baseline")

    def _previous(self, prev_actions: Nest, reward: tf.Tensor) -> Sequence[tf.Tensor]:
        if not self._prev_action_and_reward:
            return ()
        reward = tf.clip_by_value(reward, -1.0, 1.0)[..., tf.newaxis]
        return reward, self._distribution.action_features(prev_actions)

    def _heads(self, features: tf.Tensor, observation: Nest) -> AgentOutput:
        policy_logits = masked(self._policy(features), observation)
        baseline = tf.squeeze(self._baseline(features), axis=-1)
        return AgentOutput(self._distribution.sample(policy_logits), policy_logits, baseline)


class MLPandLSTM(ActorCritic):
    """Actor-critic for vectors or nests of them: an MLP with ReLU, then LSTM layers."""

    def __init__(
        self,
        parametric_action_distribution: ParametricDistribution,
        mlp_sizes: Sequence[int],
        lstm_sizes: Sequence[int],
    ):
        """As `ActorCritic`; `mlp_sizes` are the units of the dense layers."""
        super().__init__(
            parametric_action_distribution,
            VectorEncoder(mlp_sizes),
            lstm_sizes=lstm_sizes,
        )
