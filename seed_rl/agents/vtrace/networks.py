"""Facade: V-trace's networks for existing programs; our own are in `common/networks`."""

from seed_rl.common.networks.actor_critic import AgentOutput, MLPandLSTM

__all__ = ["AgentOutput", "MLPandLSTM"]
