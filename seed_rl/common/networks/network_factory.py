"""Creates the network for an observation space."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from seed_rl.common.config.network_config import ConvNetworkConfig, MLPNetworkConfig
from seed_rl.common.distributions.base import ParametricDistribution
from seed_rl.common.networks import actor_critic
from seed_rl.common.networks.action_mask import without_mask
from seed_rl.common.networks.space_encoder import is_image


def create_network(
    observation_space: Any,
    distribution: ParametricDistribution,
    conv: ConvNetworkConfig | None = None,
    mlp: MLPNetworkConfig | None = None,
) -> tf.Module:
    """A convolutional network for images, dense layers for vectors, both for nests of these.

    Args:
      observation_space: observation space of one environment.
      distribution: action distribution.
      conv: options of the layers for images.
      mlp: options of the layers for all other inputs.
    """
    conv = conv or ConvNetworkConfig()
    observation_space = without_mask(observation_space)
    if is_image(observation_space):
        return actor_critic.ConvAgent(
            distribution,
            observation_space.shape,
            torso=conv.torso,
            lstm_size=conv.lstm_sizes,
            stack_size=conv.stack_size,
            compute_dtype=conv.compute_dtype,
            observation_dtype=tf.as_dtype(observation_space.dtype),
        )
    mlp = mlp or MLPNetworkConfig()
    return actor_critic.SpaceAgent(
        distribution,
        observation_space,
        mlp.mlp_sizes,
        mlp.lstm_sizes,
        torso=conv.torso,
        stack_size=conv.stack_size,
        compute_dtype=conv.compute_dtype,
        mlp_activation=mlp.mlp_activation,
    )
