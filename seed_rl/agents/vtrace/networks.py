"""The networks of the V-trace agent for existing programs; our own are in `common/networks`."""

from seed_rl.common.networks.actor_critic import AgentOutput, MLPandLSTM

__all__ = ["AgentOutput", "MLPandLSTM"]
