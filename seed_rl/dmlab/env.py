"""Facade: names of the original; importing it defines the flags of the environments."""

from seed_rl.compat import imported_flags
from seed_rl.dmlab import environment
from seed_rl.dmlab.environment import *  # noqa: F403

create_environment = imported_flags.of_environments(
    environment.DmlabConfig, environment.create_environment
)
