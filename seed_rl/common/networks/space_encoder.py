"""Encodes observations of any Gymnasium space: images, vectors, choices and nests of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from gymnasium import spaces

from seed_rl.common.acting.action_masks import without_mask
from seed_rl.common.acting.spaces import is_image, leaf_spaces
from seed_rl.common.config.options import refuse_unused
from seed_rl.common.nest import Nest
from seed_rl.common.networks.encoders import ImageEncoder, flatten_observation
from seed_rl.common.networks.layers import Dense, variance_scaling

ACTIVATIONS = {"relu": (tf.nn.relu, variance_scaling(2.0)), "tanh": (tf.tanh, variance_scaling())}
"""By name, the function and an initializer with which it preserves signal magnitude."""


class SpaceEncoder(tf.Module):
    """Encodes observations of any structure.

    Each image has its own torso. Everything else becomes one vector for dense layers: choices
    one-hot, bytes scaled to [0, 1]. The features of both are concatenated.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        mlp_sizes: Sequence[int],
        torso: str = "nature",
        stack_size: int = 1,
        compute_dtype: tf.DType | str = tf.float32,
        mlp_activation: str = "relu",
        layer_norm: bool = False,
    ):
        """Creates layers without variables.

        Args:
          observation_space: observation space of one environment.
          mlp_sizes: units of each dense layer, for all inputs but images.
          torso: torso for images.
          stack_size: number of images in a stack.
          compute_dtype: type of the arithmetic.
          mlp_activation: a key of `ACTIVATIONS`, for the dense layers.
          layer_norm: whether each layer's outputs are normalized before its activation.
        """
        super().__init__(name="space_encoder")
        leaves = _seen(observation_space)
        options = (compute_dtype, layer_norm)
        self._images: list[ImageEncoder | None] = [
            ImageEncoder(leaf.shape, torso, stack_size, tf.as_dtype(leaf.dtype), *options)
            if is_image(leaf)
            else None
            for leaf in leaves
        ]
        self._to_vector = [None if is_image(leaf) else _vectorizer(leaf) for leaf in leaves]
        activation, initializer = ACTIVATIONS[mlp_activation]
        # Part of the names in checkpoints: prevents loading weights of the same shapes that were
        # trained with another activation.
        self._mlp_name = "_mlp" if mlp_activation == "relu" else f"_mlp_{mlp_activation}"
        layers = [
            Dense(size, activation, initializer, compute_dtype, f"dense_{i}", layer_norm)
            for i, size in enumerate(mlp_sizes)
        ]
        setattr(self, self._mlp_name, layers)

    def initial_state(self, batch_size: int | tf.Tensor) -> tuple[Any, ...]:
        """The states before the first step, one per image."""
        return tuple(image.initial_state(batch_size) for image in self._images if image)

    def __call__(
        self, observation: Nest, state: tuple[Any, ...], done: tf.Tensor, unroll: bool = False
    ) -> tuple[tf.Tensor, tuple[Any, ...]]:
        """Encodes a nest of [batch, ...], or [time, batch, ...] if `unroll`; see `ImageEncoder`."""
        leading, leaves = tf.shape(done), tf.nest.flatten(observation)
        features, vectors, new_state = [], [], []
        states = iter(state or [()] * len(leaves))
        for leaf, image, to_vector in zip(leaves, self._images, self._to_vector, strict=True):
            if image is not None:
                encoded, image_state = image(leaf, next(states), done, unroll)
                features.append(encoded)
                new_state.append(image_state)
            elif to_vector is not None:
                vectors.append(to_vector(leaf, leading))
        if vectors:
            vector = tf.concat(vectors, axis=-1)
            for layer in getattr(self, self._mlp_name):
                vector = layer(vector)
            features.append(vector)
        features = [tf.cast(feature, features[0].dtype) for feature in features]
        return tf.concat(features, axis=-1), tuple(new_state)

    def stacked(self, observation: Nest, state: tuple[Any, ...], done: tf.Tensor) -> Nest:
        """The observation with stacks for images, see `ImageEncoder.stacked`."""
        states, leaves = iter(state), tf.nest.flatten(observation)
        stacked = [
            image.stacked(leaf, next(states), done) if image else leaf
            for leaf, image in zip(leaves, self._images, strict=True)
        ]
        return tf.nest.pack_sequence_as(observation, stacked)


def refuse_unused_flags(observation_space: spaces.Space[Any]) -> None:
    """Refuses flags of layers that are not used for observations of this space.

    Raises:
      UserError: one of these flags was set.
    """
    if only_images(observation_space):
        refuse_unused(
            ["mlp_sizes", "mlp_activation", "normalize_observations"],
            f"observations are images ({observation_space}), which only the convolutions of "
            "--torso process",
        )
    if not has_images(observation_space):
        refuse_unused(
            ["torso", "stack_size"],
            f"observations are not images ({observation_space}); only the dense layers of "
            "--mlp_sizes process them",
        )


def has_images(observation_space: spaces.Space[Any]) -> bool:
    """Whether observations of the space are or contain images that a torso processes."""
    return any(is_image(leaf) for leaf in _seen(observation_space))


def only_images(observation_space: spaces.Space[Any]) -> bool:
    """Whether observations of the space have no other parts."""
    return all(is_image(leaf) for leaf in _seen(observation_space))


def _seen(observation_space: spaces.Space[Any]) -> list[Any]:
    """The spaces of the leaves that networks see: all but the action mask."""
    return leaf_spaces(without_mask(observation_space))


def _vectorizer(space: spaces.Space[Any]) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Returns a function from (<dtype>[..., *shape], leading shape) to <float32>[..., n]."""
    if isinstance(space, spaces.Discrete):
        start, n = int(space.start), int(space.n)
        return lambda leaf, leading: tf.one_hot(tf.cast(leaf, tf.int32) - start, n)
    if isinstance(space, spaces.MultiDiscrete):
        sizes = [int(n) for n in space.nvec.flatten()]
        starts = tf.constant(space.start.flatten(), tf.int32)
        return lambda leaf, leading: _one_hots(leaf, leading, sizes, starts)
    return lambda leaf, leading: flatten_observation(leaf, leading.shape[0], leading)


def _one_hots(
    leaf: tf.Tensor, leading: tf.Tensor, sizes: list[int], starts: tf.Tensor
) -> tf.Tensor:
    choices = tf.cast(tf.reshape(leaf, tf.concat([leading, [len(sizes)]], axis=0)), tf.int32)
    columns = tf.unstack(choices - starts, axis=-1)
    return tf.concat(
        [tf.one_hot(column, n) for column, n in zip(columns, sizes, strict=True)], axis=-1
    )
