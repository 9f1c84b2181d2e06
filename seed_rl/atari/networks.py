"""Facade: names of the original."""

from seed_rl.compat.atari_networks import *  # noqa: F403
