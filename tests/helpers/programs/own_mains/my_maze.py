"""A user's program whose directory has the environment in its name."""

from maze import Maze

from seed_rl.agents.vtrace import program
from seed_rl.common.acting.environment_family import EnvironmentFamily

program.main(EnvironmentFamily(Maze, print, environment="size"))
