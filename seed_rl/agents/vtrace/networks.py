"""The networks of the V-trace agent for existing programs; ours: `common/networks`."""

from seed_rl.common.networks.actor_critic import AgentOutput, MLPandLSTM

__all__ = ["AgentOutput", "MLPandLSTM"]
