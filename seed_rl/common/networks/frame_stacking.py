"""Stacks the last few frames on the learner, so that each frame crosses the wire once.

Frames from before the start of an episode are black (zero); the reset frame is not repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from seed_rl.common.networks import row_ops

FrameStackingState = Any
"""<dtype>[batch, height, width, (stack_size - 1) * channels], the previous frames, oldest first; ()
without stacking."""


def initial_frame_stacking_state(
    stack_size: int,
    batch_size: int | tf.Tensor,
    observation_shape: Sequence[int],
    dtype: tf.DType = tf.uint8,
) -> FrameStackingState:
    """State before the first frame.

    Args:
      stack_size: frames per stack; 1: no stacking.
      batch_size: number of environments.
      observation_shape: [height, width, channels] of a frame.
      dtype: type of the frames.
    """
    if stack_size == 1:
        return ()
    height, width, channels = observation_shape
    return tf.zeros([batch_size, height, width, (stack_size - 1) * channels], dtype)


def stack_frames(
    frames: tf.Tensor,
    frame_stacking_state: FrameStackingState,
    done: tf.Tensor,
    stack_size: int,
    unroll: bool | None = None,
) -> tuple[tf.Tensor, FrameStackingState]:
    """Appends each frame to the frames before it, along the channels.

    Args:
      frames: <dtype>[batch, height, width, channels], or [time, batch, ...] if `unroll`.
      frame_stacking_state: state before the first of the frames.
      done: <bool>[batch] or [time, batch]; true where a frame is the first of an episode.
      stack_size: frames per stack; 1: no stacking.
      unroll: whether there is a time dimension; None: whether `frames` has five dimensions.

    Returns:
      (<dtype>[(time,) batch, height, width, stack_size * channels] with the newest frame last,
      state after the last frame).
    """
    frames = tf.convert_to_tensor(frames)
    if stack_size == 1:
        return frames, ()
    if unroll is None:
        unroll = frames.shape.rank == 5
    channels = frames.shape[-1]
    if unroll:
        stacked = _stack_unroll(frames, frame_stacking_state, done, stack_size)
        return stacked, stacked[-1, ..., channels:]
    state = tf.convert_to_tensor(frame_stacking_state)
    history = row_ops.select(done, tf.zeros_like(state), state)
    stacked = tf.concat([history, frames], axis=-1)
    return stacked, stacked[..., channels:]


def _stack_unroll(
    frames: tf.Tensor, state: FrameStackingState, done: tf.Tensor, stack_size: int
) -> tf.Tensor:
    """Stacks all frames of an unroll at once.

    Concatenates the frames of the state, those of the unroll and one black frame. Each position in
    a stack then gathers its frame from there (the black one for frames before the episode), so
    whole frames are copied and no pixel is multiplied by a mask.
    """
    shape = tf.shape(frames)
    num_steps, batch_size = shape[0], shape[1]
    channels = frames.shape[-1]
    past = [state[..., i * channels : (i + 1) * channels] for i in range(stack_size - 1)]
    new = tf.reshape(frames, tf.concat([[-1], shape[2:]], axis=0))
    every = tf.concat([*past, new, tf.zeros_like(new[:1])], axis=0)
    black = tf.shape(every)[0] - 1

    # Frames with equal counts of episode starts belong to the same episode. The state's frames
    # count as part of the current episode: those of earlier ones are already black.
    episode = tf.cumsum(tf.cast(done, tf.int32), axis=0)
    past_episode = tf.concat([tf.zeros([stack_size - 1, batch_size], tf.int32), episode], axis=0)
    rows = tf.reshape(tf.range(black), [-1, batch_size])
    places = []
    for i in range(stack_size):
        same = tf.equal(past_episode[i : i + num_steps], episode)
        rows_here = tf.where(same, rows[i : i + num_steps], black)
        places.append(row_ops.gather(every, tf.reshape(rows_here, [-1])))
    stacked = tf.reshape(
        tf.concat(places, axis=-1), tf.concat([shape[:-1], [stack_size * channels]], axis=0)
    )
    stacked.set_shape([*frames.shape[:-1], stack_size * channels])
    return stacked
