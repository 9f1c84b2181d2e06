"""Facade: names of the original."""

from seed_rl.compat.agents.policy_gradient.eval_utils import *  # noqa: F403
