"""Facade: names of the original."""

from seed_rl.compat.agents.sac import *  # noqa: F403
