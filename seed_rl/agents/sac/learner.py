"""Facade: names of the original."""

from seed_rl.compat.agents.sac import *  # noqa: F403
from seed_rl.compat.agents.sac import ActionUnroll as Unroll  # noqa: F401
