"""Facade: names of the original; importing it defines the flags of the environments."""

from seed_rl.atari import environment
from seed_rl.atari.environment import *  # noqa: F403
from seed_rl.compat import imported_flags

create_environment = imported_flags.of_environments(
    environment.AtariConfig, environment.create_environment
)
