"""Facade: names of the original."""

from seed_rl.compat.agents.vtrace import *  # noqa: F403
