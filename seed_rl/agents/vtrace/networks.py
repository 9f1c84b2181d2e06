"""The networks of the V-trace agent: those of every actor-critic, see `common/networks`."""

from seed_rl.common.networks.actor_critic import (
    ActorCritic,
    AgentOutput,
    ConvAgent,
    MLPandLSTM,
    SpaceAgent,
)
from seed_rl.common.networks.network_factory import create_network

__all__ = [
    "ActorCritic",
    "AgentOutput",
    "ConvAgent",
    "MLPandLSTM",
    "SpaceAgent",
    "create_network",
]
