"""A user's program with a directory of its own choice."""

from maze import Maze

from seed_rl.agents.vtrace import program
from seed_rl.common.acting.environment_family import EnvironmentFamily

program.main(EnvironmentFamily(Maze, print, environment="size"), logdir="here")
