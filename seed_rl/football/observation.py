"""Planes of 0 and 255 as bits: packed by actors, unpacked by the network.

Plane p of a pixel is bit p % 16 of its word p // 16, so the 16 planes of four stacked minimaps take
2 bytes instead of 16 as <uint8> or 64 as <float32>.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from seed_rl.common.acting.env_adapters import as_gymnasium

WORD_BITS = 16

_MINIMAP_PLANES = 4
_PICTURE_SCALE = 6
_GRASS = (46, 110, 60)
# Left team, right team, ball, controlled player; later ones are drawn over earlier ones, but the
# ball over all.
_COLOURS = {0: (70, 130, 255), 1: (235, 64, 52), 3: (255, 210, 0), 2: (255, 255, 255)}


class PackedBitsObservation(gymnasium.ObservationWrapper[np.ndarray, Any, np.ndarray]):
    """Packs planes into words, and stacks those of the last few steps if asked to.

    Until an episode is `stack_size` steps old, its first observation fills the stack, as gfootball
    does.
    """

    def __init__(self, env: Any, stack_size: int = 1, render_mode: str | None = None):
        """Wraps `env`.

        Args:
          env: a Gymnasium or old gym environment with observations <uint8>[..., channels] of 0 and
            255.
          stack_size: steps in an observation, the newest in the highest bits; all their planes
            must fit one word.
          render_mode: None or "rgb_array".

        Raises:
          ValueError: the planes of a stack do not fit one word.
        """
        super().__init__(as_gymnasium(env))
        *shape, channels = self.env.observation_space.shape or ()
        if stack_size > 1 and stack_size * channels > WORD_BITS:
            raise ValueError(f"{stack_size} x {channels} planes do not fit {WORD_BITS} bits.")
        words = -(-stack_size * channels // WORD_BITS)
        self.observation_space = spaces.Box(0, 2**WORD_BITS - 1, (*shape, words), np.uint16)
        self._channels = channels
        self._newest = np.uint16(channels * (stack_size - 1))  # Position of the newest planes.
        # A word times `_repeat` is a stack of the same planes.
        self._repeat = np.uint16(sum(1 << channels * k for k in range(stack_size)))
        self._stack: np.ndarray | None = None
        self._draws = render_mode is not None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode."""
        self._stack = None
        return super().reset(seed=seed, options=options)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        """Packs <uint8>[..., channels] to <uint16>[..., words] and appends it to the stack."""
        new = pack(observation)
        if self._newest == 0:
            self._stack = new
        elif self._stack is None:
            self._stack = new * self._repeat
        else:
            self._stack = (self._stack >> np.uint16(self._channels)) | (new << self._newest)
        return self._stack

    def render(self) -> Any:
        """With "rgb_array", a picture of the newest minimap, <uint8>[height, width, 3]."""
        if not self._draws:
            return None
        assert self._stack is not None, "render() before reset()"
        return picture(self._stack >> self._newest)


def pack(planes: np.ndarray) -> np.ndarray:
    """Packs planes <uint8>[..., channels] of 0 and 255 to words <uint16>[..., words]."""
    if planes.shape[-1] == _MINIMAP_PLANES:
        # Takes a tenth of the time of packbits, which loops over pixels. One bit of each byte is
        # kept, and the product sums the four bytes in the highest one.
        pixels = np.ascontiguousarray(planes).view("<u4")
        return (((pixels & 0x08040201) * np.uint32(0x01010101)) >> 24).astype(np.uint16)
    missing = -planes.shape[-1] % WORD_BITS
    padded = np.pad(planes, [(0, 0)] * (planes.ndim - 1) + [(0, missing)])
    octets = np.packbits(padded, axis=-1, bitorder="little")
    return octets.view("<u2").astype(np.uint16, copy=False)


def unpackbits(frame: Any) -> Any:
    """Unpacks words in TensorFlow, on the device where they are.

    Args:
      frame: <uint16>[..., words]; or wider integers with the same values, which TPUs need.

    Returns:
      <uint8>[..., 16 * words] of 0 and 255. If fewer planes were packed, zeros follow.
    """
    import tensorflow as tf  # Actors never import it.

    frame = tf.convert_to_tensor(frame)
    masks = tf.constant([1 << bit for bit in range(8)], tf.uint8)
    octets = tf.bitcast(tf.cast(frame, tf.uint16), tf.uint8)  # [..., words, 2], lowest first.
    is_set = tf.not_equal(tf.bitwise.bitwise_and(octets[..., tf.newaxis], masks), 0)
    planes = tf.where(is_set, tf.constant(255, tf.uint8), tf.constant(0, tf.uint8))
    shape = tf.concat([tf.shape(frame)[:-1], [WORD_BITS * frame.shape[-1]]], axis=0)
    return tf.reshape(planes, shape)


def picture(words: np.ndarray) -> np.ndarray:
    """Draws a minimap <uint16>[height, width, 1], enlarged: <uint8>[6 height, 6 width, 3].

    The left team is blue and its controlled player yellow, the right team red, the ball white.
    """
    drawn = np.full((*words.shape[:2], 3), _GRASS, np.uint8)
    for plane, colour in _COLOURS.items():
        drawn[words[..., 0] >> np.uint16(plane) & 1 == 1] = colour
    return drawn.repeat(_PICTURE_SCALE, axis=0).repeat(_PICTURE_SCALE, axis=1)
