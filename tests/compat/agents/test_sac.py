"""What existing programs use of the SAC learner and of the hindsight replay."""

import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from absl.testing import flagsaver
from gymnasium import spaces

from seed_rl.agents.sac import learner, losses, networks
from seed_rl.agents.sac.config import SACConfig
from seed_rl.common import utils
from seed_rl.common.distributions.spaces import get_parametric_distribution_for_action_space
from seed_rl.common.errors import UserError

SPACE = spaces.Box(-1, 1, (2,), np.float32)
DISTRIBUTION = get_parametric_distribution_for_action_space(SPACE)
WINDOW, LENGTH = 6, 2
GOALS = ("observation", "achieved_goal", "desired_goal")


@pytest.fixture(autouse=True)
def default_flags():
    flags.FLAGS.mark_as_parsed()


def step_specs(time):
    observation = {key: tf.TensorSpec([time, 3], tf.float32) for key in GOALS}
    number, flag = tf.TensorSpec([time], tf.float32), tf.TensorSpec([time], tf.bool)
    action = tf.TensorSpec([time, 2], tf.float32)
    env_outputs = utils.EnvOutput(number, flag, observation, flag, tf.TensorSpec([time], tf.int32))
    state = tf.TensorSpec([4], tf.float32)
    return learner.Unroll(state, action, env_outputs, action)


def values(specs, n, seed=0):
    rng = np.random.default_rng(seed)

    def value(spec):
        shape = (n, *spec.shape)
        if spec.dtype == tf.bool:
            return tf.zeros(shape, tf.bool)
        return tf.constant(rng.normal(size=shape), spec.dtype)

    return tf.nest.map_structure(value, specs)


def test_hindsight_experience_replay(wrap):
    """Guards the public class: environment-major windows in, relabelled parts out."""
    seen = []

    def compute_reward(achieved_goal, desired_goal):
        seen.append(achieved_goal.shape)
        return np.sum(achieved_goal * desired_goal, -1)

    specs = step_specs(WINDOW + 1)
    replay = utils.HindsightExperienceReplay(10, specs, 0.0, compute_reward, LENGTH, 1.0)
    windows = values(specs, 10)
    replay.insert(windows, tf.ones(10))
    assert int(replay.num_inserted) == 10
    slots, weights, parts = wrap(lambda: replay.sample(32, 0))()
    np.testing.assert_array_equal(weights, np.ones(32))
    assert isinstance(parts, learner.Unroll) and parts.env_outputs.reward.shape == (32, LENGTH + 1)
    np.testing.assert_array_equal(parts.agent_state, tf.gather(windows.agent_state, slots))
    assert all(shape[1:] == (3,) for shape in seen)
    achieved = windows.env_outputs.observation["achieved_goal"].numpy()
    goals = parts.env_outputs.observation["desired_goal"].numpy()
    for slot, goal in zip(slots.numpy(), goals, strict=True):
        [[at]] = np.argwhere((achieved[slot] == goal[0]).all(-1))
        assert at >= LENGTH and (goal == goal[0]).all()


def loss_arguments():
    specs = step_specs(LENGTH + 1)._replace(agent_state=())
    unrolls = tf.nest.map_structure(utils.make_time_major, values(specs, 5))
    network = networks.ActorCriticMLP(DISTRIBUTION, 2, (4,))
    plain = tuple(unrolls.env_outputs)
    return network, unrolls._replace(agent_state=network.initial_state(5), env_outputs=plain)


def test_compute_loss():
    """Guards the signature, the session, and the temperature of the agent."""
    network, unrolls = loss_arguments()
    logger = utils.ProgressLogger()
    loss, session = learner.compute_loss(logger, DISTRIBUTION, network, network, *unrolls)
    assert np.isfinite(float(loss)) and session is not None
    with flagsaver.flagsaver(target_entropy=-2.0), pytest.raises(UserError, match="entropy_cost"):
        learner.compute_loss(logger, DISTRIBUTION, network, network, *unrolls)
    network.entropy_cost = losses.create_temperature(SACConfig(), SPACE)
    with tf.GradientTape() as tape:
        loss, _ = learner.compute_loss(logger, DISTRIBUTION, network, network, *unrolls)
    assert tape.gradient(loss, network.entropy_cost.parameter) is not None


def test_create_dataset():
    """Guards time-major batches from a replay that is filled on the way."""
    specs = step_specs(LENGTH + 1)
    replay = utils.PrioritizedReplay(100, specs, 0.0)
    unrolls = utils.StructuredFIFOQueue(100, specs)
    unrolls.enqueue_many(values(specs, 20))
    with flagsaver.flagsaver(batch_size=8, replay_ratio=2.0):
        assert learner.get_replay_insertion_batch_size() == 4
        dataset = learner.create_dataset(
            unrolls, replay, tf.distribute.get_strategy(), 8, lambda batch: batch
        )
    batch = next(iter(dataset))
    assert batch.env_outputs.reward.shape == (LENGTH + 1, 8)
    assert batch.agent_state.shape == (8, 4)


def test_validate_config(forks, tmp_path):
    """Guards that the defaults of the flags fit each other, in a process without other agents'."""
    program = tmp_path / "program.py"
    program.write_text("""
from absl import flags
from seed_rl.agents.sac import learner
flags.FLAGS(["program"])
learner.validate_config()
""")
    forks.run(program, code=0)
