"""The network that suits an observation space."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from gymnasium import spaces

from seed_rl.agents.vtrace import networks
from seed_rl.agents.vtrace.network_config import ConvNetworkConfig, MLPNetworkConfig
from seed_rl.common.parametric_distribution import ParametricDistribution


def create_network(
    observation_space: Any,
    distribution: ParametricDistribution,
    conv: ConvNetworkConfig | None = None,
    mlp: MLPNetworkConfig | None = None,
) -> tf.Module:
    """A convolutional network for images, dense layers for everything else.

    Args:
      observation_space: of one environment. A box of [height, width, channels] is an image.
      distribution: over actions.
      conv: options for images.
      mlp: options for the rest.
    """
    if isinstance(observation_space, spaces.Box) and len(observation_space.shape) == 3:
        conv = conv or ConvNetworkConfig()
        return networks.ConvAgent(
            distribution,
            observation_space.shape,
            torso=conv.torso,
            lstm_size=conv.lstm_size,
            stack_size=conv.stack_size,
            compute_dtype=conv.compute_dtype,
            observation_dtype=tf.as_dtype(observation_space.dtype),
        )
    mlp = mlp or MLPNetworkConfig()
    return networks.MLPandLSTM(distribution, mlp.mlp_sizes, mlp.lstm_sizes)
