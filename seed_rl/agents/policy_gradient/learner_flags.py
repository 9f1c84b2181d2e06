"""Facade: names of the original."""

from seed_rl.compat.agents.policy_gradient.learner_flags import *  # noqa: F403
