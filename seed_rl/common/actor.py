"""Facade: names of the original."""

from seed_rl.compat.actor import *  # noqa: F403
