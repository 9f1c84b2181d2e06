"""An on-policy program in the style of the original SEED RL: flags by absl, parts by gin."""

import collections

import gin
import gymnasium
import numpy as np
import tensorflow as tf
from absl import app, flags

from seed_rl.agents.policy_gradient import learner, learner_flags
from seed_rl.agents.policy_gradient.modules.continuous_control_agent import ContinuousControlAgent
from seed_rl.common import (
    actor,
    common_flags,  # noqa: F401
    utils,
)
from seed_rl.common.parametric_distribution import continuous_action_config

FLAGS = flags.FLAGS

flags.DEFINE_integer("goals", 2, "Places that the agent may have to go to.")

AgentOutput = collections.namedtuple("AgentOutput", "action policy_logits baseline")


class Reach(gymnasium.Env):
    """One step each: the reward is minus the distance of the action from the goal shown."""

    def __init__(self, goals):
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (goals,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._goals = goals
        self._goal = 0

    def reset(self, *, seed=None, options=None):
        self._goal = (self._goal + 1) % self._goals
        return np.eye(self._goals, dtype=np.float32)[self._goal], {}

    def step(self, action):
        place = np.linspace(-0.5, 0.5, self._goals)[self._goal]
        return self.reset()[0], -abs(float(action[0]) - place), True, False, {}


def create_environment(task, config):
    del task
    return Reach(config.goals)


def create_agent(action_space, observation_space, parametric_action_distribution):
    del action_space, observation_space
    return ContinuousControlAgent(parametric_action_distribution)


@gin.configurable
def create_optimizer(final_iteration, optimizer_fn):
    learning_rate_fn = tf.keras.optimizers.schedules.PolynomialDecay(1e-3, final_iteration, 0)
    return optimizer_fn(learning_rate_fn), learning_rate_fn


def main(argv):
    if len(argv) > 1:
        raise app.UsageError("Too many command-line arguments.")
    if FLAGS.run_mode == "actor":
        actor.actor_loop(create_environment, FLAGS)
    elif FLAGS.run_mode == "learner":
        gin.parse_config_files_and_bindings(FLAGS.gin_config, FLAGS.gin_bindings)
        learner.learner_loop(
            create_environment,
            create_agent,
            create_optimizer,
            learner_flags.training_config_from_flags(),
            utils.init_learner_multi_host(1),
            action_distribution_config=continuous_action_config(
                action_postprocessor="ClippedIdentity"
            ),
        )
    else:
        raise ValueError(f"Unsupported run mode {FLAGS.run_mode}")


if __name__ == "__main__":
    app.run(main)
