"""A user's program whose directory is named after it alone."""

from maze import Maze

from seed_rl.agents.vtrace import program
from seed_rl.common.acting.environment_family import EnvironmentFamily

program.main(EnvironmentFamily(Maze, print))
