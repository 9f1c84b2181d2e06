"""Checks the defaults of SAC's flags, in a process without those of other agents."""

from absl import flags

from seed_rl.agents.sac import learner

flags.FLAGS(["program"])
learner.validate_config()
