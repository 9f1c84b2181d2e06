"""R2D2's network for Atari as programs written for the original call it.

Frames are stacked with a packed state. Our own networks use
`seed_rl.common.networks.frame_stacking`, whose state is plain frames of any shape and dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from seed_rl.agents.r2d2.networks import AgentOutput, DuelingLSTM
from seed_rl.common.networks import frame_stacking
from seed_rl.common.networks.encoders import ImageEncoder
from seed_rl.common.networks.recurrent_network import AgentState, State
from seed_rl.common.types import EnvOutput

__all__ = [
    "STACKING_STATE_DTYPE",
    "AgentOutput",
    "AgentState",
    "DuelingLSTMDQNNet",
    "initial_frame_stacking_state",
    "stack_frames",
]

MAX_STACK_SIZE = 4
STACKING_STATE_DTYPE = tf.int32
_BITS, _BYTE = 8, 255

PackedState = Any
"""<int32>[batch, *shape]: the previous frames, the newest in the lowest eight bits; () if nothing
is stacked."""


class DuelingLSTMDQNNet(DuelingLSTM):
    """R2D2's network (Kapturowski et al. 2019), with the call form of existing programs."""

    def __init__(self, num_actions: int, observation_shape: Sequence[int], stack_size: int = 1):
        """Creates the layers; their variables are created by the first call.

        Args:
          num_actions: actions are [0, num_actions).
          observation_shape: [height, width, channels] of one uint8 frame.
          stack_size: number of stacked frames.
        """
        encoder = ImageEncoder(observation_shape, "nature", stack_size)
        super().__init__(num_actions, encoder, lstm_size=512, head_size=512)

    def __call__(  # type: ignore[override]
        self,
        input_: tuple[tf.Tensor, EnvOutput],
        agent_state: State,
        unroll: bool = False,
        is_training: bool = False,
    ) -> tuple[Any, State]:
        """As `DuelingLSTM`; `input_` is (prev_actions, env_outputs)."""
        return super().__call__(*input_, agent_state, unroll, is_training)


def initial_frame_stacking_state(
    stack_size: int, batch_size: int | tf.Tensor, observation_shape: Sequence[int]
) -> PackedState:
    """The state before the first frame.

    Args:
      stack_size: frames per stack, at most 4; 1 disables stacking.
      batch_size: number of environments.
      observation_shape: [*shape, 1] of a frame.

    Returns:
      <int32>[batch, *shape] of zeros, or ().

    Raises:
      ValueError: `stack_size` is out of range, or frames have several channels.
    """
    if stack_size == 1:
        return ()
    _check(stack_size, observation_shape)
    return tf.zeros([batch_size, *observation_shape[:-1]], STACKING_STATE_DTYPE)


def stack_frames(
    frames: tf.Tensor, frame_stacking_state: PackedState, done: tf.Tensor, stack_size: int
) -> tuple[tf.Tensor, PackedState]:
    """Stacks each frame with its predecessors along the last dimension, newest first.

    Args:
      frames: <uint8>[time, batch, *shape, 1]; other dtypes must hold integers from 0 to 255.
      frame_stacking_state: state before the first frame.
      done: <bool>[time, batch]; true where a frame is the first of an episode.
      stack_size: frames per stack, at most 4; 1 disables stacking.

    Returns:
      (stacks [time, batch, *shape, stack_size] with the dtype of `frames`, zero for frames from
      before the episode; state after the last frame).

    Raises:
      ValueError: `stack_size` is out of range, or frames have several channels.
    """
    frames = tf.convert_to_tensor(frames)
    if stack_size == 1:
        return frames, ()
    _check(stack_size, frames.shape[2:])
    past = [_shifted_right(frame_stacking_state, k) for k in reversed(range(stack_size - 1))]
    stacks, past = frame_stacking.stack_frames(
        frames, tf.cast(tf.stack(past, axis=-1), frames.dtype), done, stack_size, unroll=True
    )
    newest = tf.unstack(tf.cast(past, STACKING_STATE_DTYPE), axis=-1)[::-1]
    state = tf.add_n([tf.bitwise.left_shift(frame, _BITS * k) for k, frame in enumerate(newest)])
    return tf.reverse(stacks, axis=[-1]), state


def _shifted_right(packed: tf.Tensor, k: int) -> tf.Tensor:
    return tf.bitwise.bitwise_and(tf.bitwise.right_shift(packed, _BITS * k), _BYTE)


def _check(stack_size: int, observation_shape: Sequence[int]) -> None:
    if not 1 <= stack_size <= MAX_STACK_SIZE:
        raise ValueError(
            f"stack_size must be from 1 to {MAX_STACK_SIZE}, not {stack_size}: the state packs "
            "8-bit frames into 32 bits. Use seed_rl.common.networks.frame_stacking for more."
        )
    if observation_shape[-1] != 1:
        raise ValueError(
            f"Frames must have one channel, not {observation_shape[-1]} (shape "
            f"{list(observation_shape)}). Use seed_rl.common.networks.frame_stacking for more."
        )
