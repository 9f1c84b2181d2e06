"""Shared by all agents: actor loop, central inference, unrolls, learner, configuration."""
