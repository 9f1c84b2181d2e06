"""A program in the style of the original SEED RL: flags by absl, options read from FLAGS.

Only its environment uses Gymnasium.
"""

import collections

import gymnasium
import numpy as np
import tensorflow as tf
from absl import app, flags

from seed_rl.agents.vtrace import learner
from seed_rl.common import (
    actor,
    common_flags,  # noqa: F401
    utils,
)

FLAGS = flags.FLAGS

flags.DEFINE_float("learning_rate", 0.00048, "Learning rate.")
flags.DEFINE_float("adam_epsilon", 3.125e-7, "Adam epsilon.")
flags.DEFINE_integer("corridor_length", 4, "Cells of the corridor.")
flags.DEFINE_integer("unroll_length", 5, "Also defined by the learner: the program's counts.")

AgentOutput = collections.namedtuple("AgentOutput", "action policy_logits baseline")


class Corridor(gymnasium.Env):
    """Walk right to the end: reward 1."""

    def __init__(self, length):
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (length,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self._length = length

    def _observation(self):
        return np.eye(self._length, dtype=np.float32)[self._position]

    def reset(self, *, seed=None, options=None):
        self._position = 0
        return self._observation(), {}

    def step(self, action):
        self._position = max(0, self._position + (1 if action == 1 else -1))
        done = self._position == self._length - 1
        return self._observation(), float(done), done, False, {}


def create_environment(task, config):
    del task
    return Corridor(config.corridor_length)


class Network(tf.Module):
    """Recurrent, with the loop over time that existing networks have."""

    def __init__(self, parametric_action_distribution):
        super().__init__(name="network")
        self._distribution = parametric_action_distribution
        self._torso = tf.keras.layers.Dense(16, "relu")
        self._core = tf.keras.layers.LSTMCell(8)
        self._policy = tf.keras.layers.Dense(parametric_action_distribution.param_size)
        self._baseline = tf.keras.layers.Dense(1)

    @tf.function
    def initial_state(self, batch_size):
        return [tf.zeros([batch_size, 8]), tf.zeros([batch_size, 8])]

    @tf.function
    def get_action(self, *args, **kwargs):
        return self.__call__(*args, **kwargs)

    def __call__(self, input_, core_state, unroll=False, is_training=False):
        prev_actions, env_outputs = input_
        if not unroll:
            prev_actions, env_outputs = tf.nest.map_structure(
                lambda t: tf.expand_dims(t, 0), (prev_actions, env_outputs)
            )
        outputs, core_state = self._unroll(prev_actions, env_outputs, core_state)
        if not unroll:
            outputs = tf.nest.map_structure(lambda t: tf.squeeze(t, 0), outputs)
        return outputs, core_state

    def _unroll(self, prev_actions, env_outputs, core_state):
        _, done, observation, _, _ = env_outputs
        one_hot = tf.one_hot(prev_actions, self._distribution.param_size)
        features = tf.concat([observation, one_hot], axis=-1)
        torso_outputs = utils.batch_apply(self._torso, (features,))
        initial_core_state = self.initial_state(tf.shape(prev_actions)[1])
        core_outputs = []
        for input_, d in zip(tf.unstack(torso_outputs), tf.unstack(done), strict=True):
            core_state = tf.nest.map_structure(
                lambda x, y, d=d: tf.where(tf.expand_dims(d, 1), x, y),
                initial_core_state,
                core_state,
            )
            core_output, core_state = self._core(input_, core_state)
            core_outputs.append(core_output)
        return utils.batch_apply(self._head, (tf.stack(core_outputs),)), core_state

    def _head(self, core_output):
        policy_logits = self._policy(core_output)
        baseline = tf.squeeze(self._baseline(core_output), axis=-1)
        new_action = self._distribution.sample(policy_logits)
        return AgentOutput(new_action, policy_logits, baseline)


def create_agent(action_space, env_observation_space, parametric_action_distribution):
    del action_space, env_observation_space
    return Network(parametric_action_distribution)


def create_optimizer(final_iteration):
    learning_rate_fn = tf.keras.optimizers.schedules.PolynomialDecay(
        FLAGS.learning_rate, final_iteration, 0
    )
    optimizer = tf.keras.optimizers.Adam(learning_rate_fn, beta_1=0, epsilon=FLAGS.adam_epsilon)
    return optimizer, learning_rate_fn


def main(argv):
    if len(argv) > 1:
        raise app.UsageError("Too many command-line arguments.")
    if FLAGS.run_mode == "actor":
        actor.actor_loop(create_environment, FLAGS)
    elif FLAGS.run_mode == "learner":
        learner.learner_loop(create_environment, create_agent, create_optimizer)
    else:
        raise ValueError(f"Unsupported run mode {FLAGS.run_mode}")


if __name__ == "__main__":
    app.run(main)
