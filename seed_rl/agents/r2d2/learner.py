"""Facade: names of the original."""

from seed_rl.compat.agents.r2d2 import *  # noqa: F403
from seed_rl.compat.agents.r2d2 import FinishedEpisodes as EpisodeInfo  # noqa: F401
from seed_rl.compat.agents.r2d2 import PrioritizedUnroll as Unroll  # noqa: F401
