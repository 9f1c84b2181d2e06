"""Q-networks, feed-forward or with LSTMs."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from gymnasium import spaces

from seed_rl.agents.pqn.config import NormConfig
from seed_rl.common.config.network_config import ConvNetworkConfig, MLPNetworkConfig
from seed_rl.common.distributions.base import ParametricDistribution
from seed_rl.common.nest import Nest
from seed_rl.common.networks import network_factory
from seed_rl.common.networks.action_mask import masked
from seed_rl.common.networks.actor_critic import ActorCritic, AgentOutput


class QNetwork(ActorCritic):
    """An actor-critic whose logits are Q-values, and whose baseline is the largest of them."""

    def _heads(self, features: tf.Tensor, observation: Nest) -> AgentOutput:
        q_values = masked(self._policy(features), observation)
        return AgentOutput(self._distribution.mode(q_values), q_values, tf.reduce_max(q_values, -1))


def create_network(
    observation_space: spaces.Space[Any],
    distribution: ParametricDistribution,
    conv: ConvNetworkConfig | None = None,
    mlp: MLPNetworkConfig | None = None,
    norm: NormConfig | None = None,
) -> ActorCritic:
    """Creates a network with convolutions for images, dense layers for vectors, both for nests.

    Args:
      observation_space: of one environment.
      distribution: over actions; has one parameter per action.
      conv: see `network_factory.create_network`.
      mlp: see `network_factory.create_network`.
      norm: options of all layers for inputs.
    """
    layer_norm = (norm or NormConfig()).layer_norm
    return network_factory.create_network(
        observation_space, distribution, conv, mlp, layer_norm, QNetwork
    )
