"""Encoders of observations: convolutional torsos for images, MLPs for everything else."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from seed_rl.common.errors import UserError
from seed_rl.common.nest import Nest
from seed_rl.common.networks import frame_stacking
from seed_rl.common.networks.layers import Conv2D, Dense, variance_scaling

_RELU_INIT = variance_scaling(2.0)


class _ShallowTorso(tf.Module):
    """Convolutions, the first one 8x8 with stride 4, and a dense layer.

    Attributes:
      convolutions: (filters, kernel size, stride) of each.
      num_features: units of the dense layer.
    """

    first_kernel_size, first_stride = 8, 4
    convolutions: Sequence[tuple[int, int, int]]
    num_features: int

    def __init__(
        self,
        first: Callable[..., Conv2D],
        compute_dtype: tf.DType | str,
        layer_norm: bool = False,
    ):
        """Creates layers; `first` creates the convolution of the observations."""
        super().__init__()
        options: dict[str, Any] = dict(
            activation=tf.nn.relu,
            kernel_initializer=_RELU_INIT,
            compute_dtype=compute_dtype,
            layer_norm=layer_norm,
        )
        self._layers = [
            (Conv2D if i else first)(*sizes, **options, name=f"conv_{i}")
            for i, sizes in enumerate(self.convolutions)
        ]
        self._dense = Dense(self.num_features, **options, name="dense")

    def __call__(self, images: tf.Tensor, use_float32: bool = False) -> tf.Tensor:
        """[batch, height, width, channels] -> [batch, num_features]; see `Dense`."""
        for layer in self._layers:
            images = layer(images)
        return self._dense(flatten_batch(images), use_float32)


class NatureTorso(_ShallowTorso):
    """The network of Mnih et al. 2015: convolutions of 32, 64 and 64 channels, 512 units."""

    convolutions, num_features = ((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512


class ImpalaShallowTorso(_ShallowTorso):
    """The small network of Espeholt et al. 2018, fig. 3: convolutions of 16 and 32, 256 units."""

    convolutions, num_features = ((16, 8, 4), (32, 4, 2)), 256


class ImpalaDeepTorso(tf.Module):
    """The large network of Espeholt et al. 2018, fig. 3: 15 convolutions in 3 sections, 256 units.

    A section is a convolution, max pooling that halves the image, and two residual blocks of
    relu, convolution, relu, convolution. Subclasses may set other `filters`, one per section.
    """

    first_kernel_size, first_stride, num_features = 3, 1, 256
    filters: Sequence[int] = (16, 32, 32)

    def __init__(
        self,
        first: Callable[..., Conv2D],
        compute_dtype: tf.DType | str,
        layer_norm: bool = False,
    ):
        """Creates layers; `first` creates the convolution of the observations."""
        super().__init__(name="impala_deep_torso")
        options: dict[str, Any] = dict(
            padding="SAME", compute_dtype=compute_dtype, layer_norm=layer_norm
        )
        self._sections = []
        for i, filters in enumerate(self.filters):
            make = first if i == 0 else Conv2D
            entry = make(filters, 3, 1, **options, name=f"section_{i}")
            blocks = [
                [
                    Conv2D(filters, 3, 1, **options, name=f"section_{i}_block_{j}_conv_{k}")
                    for k in range(2)
                ]
                for j in range(2)
            ]
            self._sections.append((entry, blocks))
        self._dense = Dense(
            self.num_features,
            activation=tf.nn.relu,
            kernel_initializer=_RELU_INIT,
            compute_dtype=compute_dtype,
            name="dense",
            layer_norm=layer_norm,
        )

    def __call__(self, images: tf.Tensor, use_float32: bool = False) -> tf.Tensor:
        """[batch, height, width, channels] -> [batch, num_features]; see `Dense`."""
        for entry, blocks in self._sections:
            images = tf.nn.max_pool2d(entry(images), 3, 2, padding="SAME")
            for first, second in blocks:
                images += second(tf.nn.relu(first(tf.nn.relu(images))))
        return self._dense(tf.nn.relu(flatten_batch(images)), use_float32)


TORSOS: dict[str, Any] = {
    "nature": NatureTorso,
    "impala_shallow": ImpalaShallowTorso,
    "impala_deep": ImpalaDeepTorso,
}


class ImageEncoder(tf.Module):
    """Stacks frames and runs a torso on them."""

    def __init__(
        self,
        observation_shape: Sequence[int],
        torso: str = "nature",
        stack_size: int = 1,
        dtype: tf.DType = tf.uint8,
        compute_dtype: tf.DType | str = tf.float32,
        layer_norm: bool = False,
    ):
        """Creates layers without variables.

        Args:
          observation_shape: shape of an image, [height, width] or [height, width, channels].
          torso: one of `TORSOS`.
          stack_size: number of frames in a stack.
          dtype: type of the images; only bytes are scaled, from [0, 255] to [0, 1].
          compute_dtype: type of the arithmetic.
          layer_norm: whether each layer's outputs are normalized before its activation.

        Raises:
          UserError: there is no such torso.
        """
        super().__init__(name="image_encoder")
        if torso not in TORSOS:
            raise UserError(f"Unknown torso '{torso}'; choose one of {', '.join(TORSOS)}.")
        self._observation_shape = tuple(observation_shape)
        self._stack_size = stack_size
        self._dtype = tf.as_dtype(dtype)
        self._frame_shape = (*observation_shape, 1)[:3]
        cls = TORSOS[torso]
        self._block = _block_size(self._frame_shape, self._dtype, cls) if stack_size > 1 else 1
        if self._block > 1:
            height, width, channels = self._frame_shape
            block = self._block
            self._frame_shape = (height // block, width // block, channels * block**2)
        self.torso = cls(self._first_convolution, compute_dtype, layer_norm)
        self.num_features: int = self.torso.num_features

    def initial_state(self, batch_size: int | tf.Tensor) -> Any:
        """The state before the first frame."""
        return frame_stacking.initial_frame_stacking_state(
            self._stack_size, batch_size, self._frame_shape, self._dtype
        )

    def __call__(
        self, images: tf.Tensor, state: Any, done: tf.Tensor, unroll: bool = False
    ) -> tuple[tf.Tensor, Any]:
        """Encodes [batch, *observation_shape], or [time, batch, ...] if `unroll`.

        Args:
          images: the images of each step; or what `stacked` returned.
          state: the frames before them; () if they are stacked already.
          done: <bool>[batch] or [time, batch]; true where an episode begins.
          unroll: whether there is a time dimension.

        Returns:
          ([(time,) batch, num_features], state after the last step).
        """
        leading, stacked = tf.shape(done), images
        if self._stack_size == 1 or not isinstance(state, tuple):
            stacked, state = self._stacked(images, state, done, unroll)
        height, width, channels = self._frame_shape
        stacked = tf.reshape(stacked, [-1, height, width, channels * self._stack_size])
        features = self.torso(stacked, use_float32=not unroll)
        return tf.reshape(features, tf.concat([leading, [self.num_features]], axis=0)), state

    def stacked(self, images: tf.Tensor, state: Any, done: tf.Tensor) -> tf.Tensor:
        """Only stacks, for later calls: their `images` may be any rows of the result, in any order.

        Args: see `__call__`, with a time dimension.

        Returns:
          [time, batch, ...] in an internal format.
        """
        return self._stacked(images, state, done, True)[0]

    def _stacked(
        self, images: tf.Tensor, state: Any, done: tf.Tensor, unroll: bool
    ) -> tuple[tf.Tensor, Any]:
        images = self._to_blocks(tf.reshape(images, [-1, *self._observation_shape]))
        frames = tf.reshape(images, tf.concat([tf.shape(done), self._frame_shape], axis=0))
        if done.shape.is_fully_defined():
            frames.set_shape([*done.shape, *self._frame_shape])
        return frame_stacking.stack_frames(frames, state, done, self._stack_size, unroll)

    def _first_convolution(
        self, filters: int, kernel_size: int, stride: int, **options: Any
    ) -> Conv2D:
        scale = 1.0 / 255.0 if self._dtype == tf.uint8 else 1.0
        block = self._block
        return Conv2D(filters, kernel_size // block, stride // block, input_scale=scale, **options)

    def _to_blocks(self, images: tf.Tensor) -> tf.Tensor:
        """Moves blocks of block x block pixels into the channels.

        A convolution whose stride is the block size becomes one of stride 1 on the result. This
        speeds up stacking: frames are interleaved in runs of 16 bytes instead of single bytes, at
        an eighth of the cost (which equals that of a whole convolution).
        """
        if self._block == 1:
            return images
        height, width, _ = self._frame_shape
        # A row of a block (`block` pixels, all channels) moves as one integer.
        word = _WORDS[self._row_bytes()]
        rows = tf.reshape(images, [-1, height, self._block, width, self._row_bytes()])
        rows = tf.reshape(tf.bitcast(rows, word), [-1, height, self._block, width])
        blocks = tf.bitcast(tf.transpose(rows, [0, 1, 3, 2]), tf.uint8)
        return tf.reshape(blocks, [-1, *self._frame_shape])

    def _row_bytes(self) -> int:
        return self._frame_shape[2] // self._block


class VectorEncoder(tf.Module):
    """Flattens observations of any structure to one vector and runs an MLP with ReLU on it."""

    def __init__(self, mlp_sizes: Sequence[int]):
        """Creates layers without variables.

        Args:
          mlp_sizes: units of each layer; without any, the features are the vector itself.
        """
        super().__init__(name="vector_encoder")
        self._layers = [
            Dense(size, tf.nn.relu, _RELU_INIT, name=f"dense_{i}")
            for i, size in enumerate(mlp_sizes)
        ]

    def initial_state(self, batch_size: int | tf.Tensor) -> tuple[()]:
        """The empty state."""
        del batch_size
        return ()

    def __call__(
        self, observation: Nest, state: tuple[()], done: tf.Tensor, unroll: bool = False
    ) -> tuple[tf.Tensor, tuple[()]]:
        """Encodes a nest of [batch, ...], or [time, batch, ...] if `unroll`; see `ImageEncoder`."""
        del unroll
        features = flatten_observation(observation, len(done.shape), tf.shape(done))
        for layer in self._layers:
            features = layer(features)
        return features, state


def flatten_observation(
    observation: Nest, num_leading: int, leading: tf.Tensor | tuple[int, ...] = (-1,)
) -> tf.Tensor:
    """Concatenates a nest of [..., *shape] to <float32>[*leading, n]; bytes are scaled to [0, 1].

    Args:
      observation: nest of tensors.
      num_leading: 1 or 2, their number of leading dimensions.
      leading: <int32>[1 or 2], what these become; by default one dimension.
    """
    columns = []
    for leaf in tf.nest.flatten(observation):
        column = tf.cast(leaf, tf.float32)
        if leaf.dtype == tf.uint8:  # Normalized bytes are floats already.
            column *= 1.0 / 255.0
        if num_leading > 1 or len(leaf.shape) != 2:
            width = math.prod(leaf.shape[num_leading:])
            column = tf.reshape(column, tf.concat([leading, [width]], axis=0))
        columns.append(column)
    return columns[0] if len(columns) == 1 else tf.concat(columns, axis=-1)


def flatten_batch(images: tf.Tensor) -> tf.Tensor:
    """[batch, ...] -> [batch, n]."""
    return tf.reshape(images, [-1, math.prod(images.shape[1:])])


_WORDS = {2: tf.uint16, 4: tf.uint32, 8: tf.uint64}
"""Integer types by their size in bytes."""


def _block_size(frame_shape: Sequence[int], dtype: tf.DType, torso: Any) -> int:
    """Side of the blocks to move into channels, or 1 where that is not possible."""
    height, width, channels = frame_shape
    block = torso.first_stride
    fits = (
        dtype == tf.uint8
        and block * channels in _WORDS
        and not any(size % block for size in (height, width, torso.first_kernel_size))
    )
    return block if fits else 1
