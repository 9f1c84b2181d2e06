"""Normalization of observations in a wrapper around any network."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.acting.action_masks import KEY
from seed_rl.common.inference.network_calls import call_network
from seed_rl.common.normalizer import NormalizeObservationsWrapper, Normalizer
from tests.helpers.network_inputs import env_outputs

Output = collections.namedtuple("Output", "observation")


class Echo(tf.Module):
    """A network that returns the observation it sees."""

    def initial_state(self, batch_size):
        return tf.zeros([batch_size])

    def __call__(self, prev_actions, env_outputs, agent_state, unroll=False, is_training=False):
        return Output(env_outputs.observation), agent_state

    def get_Q(self, prev_action, env_output, state, action):
        return env_output.observation, state, action

    def get_V(self, prev_action, env_output, state):
        return env_output.observation, state


class OtherForm(Echo):
    """The same in the other call form."""

    def __call__(self, inputs, agent_state, unroll=False):
        return Output(inputs[1].observation), agent_state


def test_equals_numpy_over_updates():
    normalizer, rng, seen = Normalizer(eps=0.01), np.random.default_rng(0), []
    for scale in (1.0, 10.0, 3.0):
        batch = (scale * rng.normal(size=(4, 5, 3)) + [0, 1e4, -5]).astype(np.float32)
        seen.append(batch.reshape(-1, 3))
        normalizer.update(batch)
        samples = np.concatenate(seen).astype(np.float64)
        expected = (batch - samples.mean(0)) / (samples.std(0) + 0.01)
        np.testing.assert_allclose(
            normalizer(batch), np.clip(expected, -5, 5), rtol=1e-3, atol=1e-3
        )


def test_accumulated_samples_count_when_the_update_is_finished():
    normalizer, x = Normalizer(eps=0.0), tf.constant([[1.0], [3.0]])
    normalizer.finish_update()  # There may have been no sample at all.
    normalizer.update(x, only_accumulate=True)
    normalizer.update(x + 4, only_accumulate=True)
    np.testing.assert_array_equal(normalizer(x), x)
    normalizer.finish_update()
    np.testing.assert_allclose(normalizer.get_logs()["normalizer/mean"], [4.0])
    np.testing.assert_allclose(normalizer(x), (x - 4) / np.std([1, 3, 5, 7]), rtol=1e-6)
    normalizer.finish_update()  # Nothing new.
    np.testing.assert_allclose(normalizer.get_logs()["normalizer/std"], [np.std([1, 3, 5, 7])])


def test_outputs_are_bounded_and_samples_that_are_not_finite_left_out():
    normalizer = Normalizer(clip_range=(-2, 3))
    normalizer.update(tf.constant([[1.0, np.nan], [np.inf, 7.0], [3.0, 1e30]]))
    logs = normalizer.get_logs()
    np.testing.assert_allclose(logs["normalizer/mean"], [2.0, 7.0])
    np.testing.assert_allclose(logs["normalizer/std"], [1.0, 0.0])
    np.testing.assert_array_equal(normalizer(tf.constant([[1e9, -1e9]])), [[3.0, -2.0]])


@pytest.mark.parametrize("policy", [Echo(), OtherForm()], ids=["one form", "other form"])
def test_each_part_of_an_observation_is_normalized(policy):
    """In unrolls and single steps, whatever shapes and types the parts have; but images, masks
    and choices are left alone.
    """
    wrapper = NormalizeObservationsWrapper(policy, Normalizer(eps=0.0))
    rng = np.random.default_rng(0)
    unroll = {
        "position": rng.normal(size=(7, 2, 3, 2)).astype(np.float32) + 10,
        "speed": rng.integers(0, 9, (7, 2)).astype(np.uint8),
    }
    left = {
        "choice": rng.integers(0, 9, (7, 2)).astype(np.int64),
        "image": np.full((7, 2, 36, 36, 1), 9, np.uint8),
        KEY: np.ones((7, 2, 3), np.uint8),
    }
    unroll |= left
    state = wrapper.initial_state(2)
    call_network(wrapper, (), env_outputs((7, 2), unroll), state, True, True)
    np.testing.assert_array_equal(wrapper._normalizer.mean, np.zeros(7))
    wrapper.end_of_training_step_callback()
    seen, _ = call_network(wrapper, (), env_outputs((7, 2), unroll), state, True, False)
    step = tf.nest.map_structure(lambda t: t[3], unroll)
    now, new_state = call_network(wrapper, (), env_outputs((2,), step), state)
    for name, values in left.items():
        np.testing.assert_array_equal(seen.observation[name], values)
        assert unroll.pop(name).dtype == seen.observation[name].dtype
    for name, values in unroll.items():
        expected = np.clip((values - values.mean((0, 1))) / values.std((0, 1)), -5, 5)
        assert seen.observation[name].dtype == tf.float32
        np.testing.assert_allclose(seen.observation[name], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(now.observation[name], expected[3], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(new_state, state)


def test_other_methods_see_normalized_observations_too():
    wrapper = NormalizeObservationsWrapper(Echo(), Normalizer(eps=0.0))
    x = tf.constant([[[1.0]], [[3.0]]])
    outputs = env_outputs((2, 1), x)
    wrapper((), outputs, (), unroll=True, is_training=True)
    wrapper.end_of_training_step_callback()
    normalized = [[[-1.0]], [[1.0]]]
    observation, state, action = wrapper.get_Q((), outputs, "state", action="action")
    np.testing.assert_allclose(observation, normalized)
    assert (state, action) == ("state", "action")
    np.testing.assert_allclose(wrapper.get_V((), outputs, "state")[0], normalized)
    np.testing.assert_allclose(wrapper.get_action((), outputs, ())[0].observation, normalized)


def test_statistics_are_in_checkpoints_and_not_trained(tmp_path):
    normalizer, restored = Normalizer(), Normalizer()
    for each in (normalizer, restored):
        each(tf.zeros([1, 2]))
        assert not each.trainable_variables
    normalizer.update(tf.constant([[1.0, 2.0], [5.0, 7.0]]))
    path = tf.train.Checkpoint(network=normalizer).write(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(network=restored).read(path).assert_consumed()
    for each in (normalizer, restored):  # What comes next is added to all that came before.
        each.update(tf.constant([[0.0, 0.0]]))
    for name, values in normalizer.get_logs().items():
        np.testing.assert_array_equal(restored.get_logs()[name], values)
