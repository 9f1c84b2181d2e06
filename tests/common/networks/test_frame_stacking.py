"""Frame stacking against a queue of frames per environment."""

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.networks.frame_stacking import initial_frame_stacking_state, stack_frames
from tests.helpers.network_inputs import queue_stack

SHAPE = (5, 4)


def episode_frames(seed, num_steps, batch, channels=1, p_done=0.3):
    rng = np.random.default_rng(seed)
    frames = rng.integers(1, 256, (num_steps, batch, *SHAPE, channels)).astype(np.uint8)
    return frames, rng.random((num_steps, batch)) < p_done


@pytest.mark.parametrize("stack_size, channels", [(2, 1), (4, 1), (3, 2)])
def test_single_steps_equal_a_queue(stack_size, channels):
    frames, done = episode_frames(0, 15, 6, channels)
    state = initial_frame_stacking_state(stack_size, 6, (*SHAPE, channels))
    expected = queue_stack(frames, done, stack_size)
    for t in range(15):
        stacked, state = stack_frames(frames[t], state, done[t], stack_size)
        np.testing.assert_array_equal(stacked, expected[t])
        assert stacked.dtype == state.dtype == tf.uint8


@pytest.mark.parametrize("stack_size, channels", [(2, 1), (4, 1), (3, 2)])
@pytest.mark.parametrize("p_done", [0.3, 0.0, 1.0])
@pytest.mark.parametrize("cuts", [(15,), (7, 8), (1, 2, 12), (2, 1, 1, 11)], ids=str)
def test_unrolls_of_any_length_equal_a_queue(stack_size, channels, p_done, cuts):
    """Unrolls shorter than the stack reach through the state into earlier unrolls.

    The first frame is not repeated; what was before it is black.
    """
    frames, done = episode_frames(1, 15, 6, channels, p_done)
    state = initial_frame_stacking_state(stack_size, 6, (*SHAPE, channels))
    expected = queue_stack(frames, done, stack_size)
    assert not expected[0, ..., :-channels].any()
    start = 0
    for length in cuts:
        part = slice(start, start + length)
        stacked, state = stack_frames(frames[part], state, done[part], stack_size)
        np.testing.assert_array_equal(stacked, expected[part])
        start += length


def test_unknown_time_and_batch_in_a_graph():
    spec = [
        tf.TensorSpec([None, None, *SHAPE, 1], tf.uint8),
        tf.TensorSpec([None, *SHAPE, 3], tf.uint8),
        tf.TensorSpec([None, None], tf.bool),
    ]
    stack = tf.function(lambda f, s, d: stack_frames(f, s, d, 4), input_signature=spec)
    frames, done = episode_frames(3, 6, 3)
    stacked, _ = stack(frames, initial_frame_stacking_state(4, 3, (*SHAPE, 1)), done)
    np.testing.assert_array_equal(stacked, queue_stack(frames, done, 4))
    assert stack.get_concrete_function().structured_outputs[0].shape[-1] == 4


def test_a_stack_of_one_is_the_frame_and_keeps_no_state():
    frames, done = episode_frames(4, 3, 2)
    state = initial_frame_stacking_state(1, 2, (*SHAPE, 1))
    assert state == ()
    stacked, state = stack_frames(tf.constant(frames), state, done, 1)
    np.testing.assert_array_equal(stacked, frames)
    assert state == ()
