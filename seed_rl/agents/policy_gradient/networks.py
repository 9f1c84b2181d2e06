"""The network that a gin config describes."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from seed_rl.agents.policy_gradient import gin_config
from seed_rl.agents.policy_gradient.modules.continuous_control_agent import ContinuousControlAgent
from seed_rl.common.config.options import refuse_unused
from seed_rl.common.distributions.base import ParametricDistribution
from seed_rl.common.networks import network_factory, space_encoder
from seed_rl.common.normalization import normalizer


def create_network(observation_space: Any, distribution: ParametricDistribution) -> tf.Module:
    """`ContinuousControlAgent` for vectors and nests of them.

    Where there are images, the network of the other actor-critic agents, configured by
    `ConvNetworkConfig`, `MLPNetworkConfig` and `ObservationConfig`.

    Args:
      observation_space: of one environment.
      distribution: over actions.

    Raises:
      UserError: --normalize_observations was set, and all observations are images.
    """
    if not space_encoder.has_images(observation_space):
        return ContinuousControlAgent(distribution)
    network = network_factory.create_network(
        observation_space,
        distribution,
        conv=gin_config.conv_network_config(),
        mlp=gin_config.mlp_network_config(),
    )
    if space_encoder.only_images(observation_space):
        refuse_unused(
            ["normalize_observations"],
            f"observations are images ({observation_space}), which only the torso processes",
        )
        return network
    return normalizer.normalized(network, gin_config.observation_config())
