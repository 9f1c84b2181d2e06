"""Facade: names of the original."""

from seed_rl.compat.profiling import *  # noqa: F403
