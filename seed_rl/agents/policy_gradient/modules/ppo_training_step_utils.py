"""Facade: names of the original."""

from seed_rl.compat.agents.policy_gradient.training_step import *  # noqa: F403
