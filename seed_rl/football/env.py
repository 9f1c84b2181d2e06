"""Facade: names of the original; importing it defines the flags of the environments."""

from seed_rl.compat import imported_flags
from seed_rl.football import environment
from seed_rl.football.environment import *  # noqa: F403

create_environment = imported_flags.of_environments(
    environment.FootballConfig, environment.create_environment
)
