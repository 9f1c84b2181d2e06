"""Facade: names of the original."""

from seed_rl.compat.agents.r2d2 import *  # noqa: F403
