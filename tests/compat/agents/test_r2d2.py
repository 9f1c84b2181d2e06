"""The parts of R2D2's learner that existing programs put together themselves."""

import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from absl.testing import flagsaver
from gymnasium import spaces

from seed_rl.agents.r2d2 import learner
from seed_rl.atari import r2d2_main
from seed_rl.common import utils
from seed_rl.common.inference.env_specs import env_output_specs
from seed_rl.common.types import EnvOutput
from seed_rl.compat import r2d2_agents

STEPS = 3


def specs():
    def steps(dtype):
        return tf.TensorSpec([STEPS], dtype)

    return learner.Unroll(
        agent_state=tf.TensorSpec([2], tf.float32),
        priority=tf.TensorSpec([], tf.float32),
        prev_actions=steps(tf.int32),
        env_outputs=EnvOutput(
            *(steps(dtype) for dtype in (tf.float32, tf.bool, tf.uint8, tf.bool, tf.int32))
        ),
        agent_outputs=steps(tf.int32),
    )


def unroll(number):
    """Its values identify the unroll, and its actions the step."""
    full = tf.nest.map_structure(
        lambda s: tf.cast(tf.fill(s.shape, number), s.dtype), specs()._replace(priority=())
    )
    actions = tf.range(STEPS) + 10 * number
    return full._replace(priority=tf.constant(1.0), prev_actions=actions)


@pytest.fixture
def replay_ratio():
    """--batch_size=4 --replay_ratio=2."""
    flags.FLAGS.mark_as_parsed()
    with flagsaver.flagsaver(batch_size=4, replay_ratio=2.0):
        yield


def test_networks_are_created_from_specs_and_a_number():
    """Guards the original's signature of `create_agent`, in both directions."""
    space = spaces.Dict({"a": spaces.Box(0, 255, (36, 36, 1), np.uint8), "b": spaces.Box(0, 1, ())})
    specs, number = r2d2_agents.with_spaces(lambda *given: given)(spaces.Discrete(5), space, None)
    assert number == 5 and specs == env_output_specs(space)
    flags.FLAGS.mark_as_parsed()
    network = r2d2_main.create_agent(specs, number)
    output, _ = network(
        tf.zeros([2], tf.int32),
        tf.nest.map_structure(lambda s: tf.zeros([2, *s.shape], s.dtype), specs),
        network.initial_state(2),
    )
    assert output.q_values.shape == [2, 5]


@pytest.mark.usefixtures("replay_ratio")
def test_batches_come_from_the_replay_after_what_is_new():
    """Guards that each batch waits for batch_size / replay_ratio unrolls and is time-major."""
    assert learner.get_replay_insertion_batch_size() == 2
    queue = utils.StructuredFIFOQueue(10, specs())
    buffer = utils.PrioritizedReplay(10, specs(), 0.6)
    dataset = learner.create_dataset(
        queue,
        buffer,
        tf.distribute.get_strategy(),
        batch_size=4,
        priority_exponent=0.9,
        encode=lambda batch: batch._replace(importance_weights=-batch.importance_weights),
    )
    for number in (1, 2):
        queue.enqueue(unroll(number))
    batch = next(iter(dataset))
    assert int(queue.size()) == 0
    assert batch.indices.shape == [4]
    np.testing.assert_array_equal(batch.importance_weights, -np.ones(4))
    numbers = batch.unrolls.agent_outputs.numpy()
    assert numbers.shape == (STEPS, 4) and set(numbers.flat) <= {1, 2}
    np.testing.assert_array_equal(batch.unrolls.agent_state[:, 0], numbers[0])
    np.testing.assert_array_equal(
        batch.unrolls.prev_actions, 10 * numbers + np.arange(STEPS)[:, None]
    )
    queue.close()
