"""Creates the network for an observation space."""

from __future__ import annotations

from typing import Any

from seed_rl.common.config.network_config import ConvNetworkConfig, MLPNetworkConfig
from seed_rl.common.distributions.base import ParametricDistribution
from seed_rl.common.errors import UserError
from seed_rl.common.networks.actor_critic import ActorCritic
from seed_rl.common.networks.space_encoder import SpaceEncoder


def create_network(
    observation_space: Any,
    distribution: ParametricDistribution,
    conv: ConvNetworkConfig | None = None,
    mlp: MLPNetworkConfig | None = None,
    layer_norm: bool = False,
    network: type[ActorCritic] = ActorCritic,
) -> ActorCritic:
    """A convolutional network for images, dense layers for vectors, both for nests of these.

    Args:
      observation_space: observation space of one environment.
      distribution: action distribution.
      conv: options of the layers for images, and of the LSTM.
      mlp: options of the layers for all other inputs, and of the LSTM.
      layer_norm: whether each layer's outputs are normalized before its activation.
      network: `ActorCritic`, or a subclass with other heads.

    Raises:
      UserError: `conv` and `mlp` describe different LSTMs.
    """
    conv, mlp = conv or ConvNetworkConfig(), mlp or MLPNetworkConfig()
    encoder = SpaceEncoder(
        observation_space,
        mlp.mlp_sizes,
        conv.torso,
        conv.stack_size,
        conv.compute_dtype,
        mlp.mlp_activation,
        layer_norm,
    )
    sizes = _lstm_sizes(conv, mlp)
    # As in IMPALA, the LSTM sees the previous action and reward, too.
    return network(distribution, encoder, sizes, any(sizes), conv.compute_dtype)


def _lstm_sizes(conv: ConvNetworkConfig, mlp: MLPNetworkConfig) -> tuple[int, ...]:
    """The units of the LSTM, for which both configs have an option."""
    given = {sizes for sizes in (tuple(conv.lstm_sizes), tuple(mlp.lstm_sizes)) if any(sizes)}
    if len(given) > 1:
        raise UserError(
            f"ConvNetworkConfig.lstm_sizes = {conv.lstm_sizes} and MLPNetworkConfig.lstm_sizes = "
            f"{mlp.lstm_sizes} describe the same LSTM: set only one of them, or both to the same "
            "value."
        )
    return given.pop() if given else ()
