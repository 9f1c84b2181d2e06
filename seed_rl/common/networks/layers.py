"""The layers of our networks, as plain `tf.Module`s.

Unlike those of Keras 3 layers, their variables are found by `tf.Module.trainable_variables`. They
also choose the fastest types: weights are float32 and cast where the arithmetic is bfloat16; dense
and recurrent layers skip the cast on the small batches of inference.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Sequence

import tensorflow as tf

from seed_rl.common.nest import Nest
from seed_rl.common.system import processor

_AMPERE = (8, 0)
"""Compute capability of the first NVIDIA GPUs with instructions for bfloat16."""

Initializer = Callable[[Sequence[int]], tf.Tensor]
"""Maps the shape of a kernel, [..., inputs, outputs], to its initial value <float32>."""

Activation = Callable[[tf.Tensor], tf.Tensor]
"""Of [rows, n], or of [batch, height, width, n]."""


def variance_scaling(scale: float = 1.0) -> Initializer:
    """Uniform with variance scale / fan-in, which preserves signal magnitude (LeCun et al. 1998).

    Args:
      scale: 2 compensates for a following ReLU (He et al. 2015).
    """

    def initialize(shape: Sequence[int]) -> tf.Tensor:
        fan_in = math.prod(shape[:-1])
        limit = math.sqrt(3.0 * scale / fan_in)
        return tf.random.uniform(shape, -limit, limit)

    return initialize


def glorot(shape: Sequence[int]) -> tf.Tensor:
    """Uniform with variance 2 / (fan-in + fan-out) (Glorot & Bengio 2010)."""
    fan_in_and_out = math.prod(shape[:-2]) * (shape[-2] + shape[-1])
    limit = math.sqrt(6.0 / fan_in_and_out)
    return tf.random.uniform(shape, -limit, limit)


def orthogonal(shape: Sequence[int]) -> tf.Tensor:
    """A random orthogonal matrix (Saxe et al. 2014)."""
    rows, columns = math.prod(shape[:-1]), shape[-1]
    q, r = tf.linalg.qr(tf.random.normal([max(rows, columns), min(rows, columns)]))
    # The signs make the distribution uniform over orthogonal matrices.
    q *= tf.sign(tf.linalg.diag_part(r))
    return tf.reshape(q if rows >= columns else tf.transpose(q), shape)


def to_rows(tensor: tf.Tensor) -> tf.Tensor:
    """[..., n] -> [rows, n], for products with a matrix.

    `tf.matmul` of more dimensions is a batch of products, such as one for each step of an unroll.
    Its gradient computes the matrix's gradient for each of them, and then adds these up.
    """
    return tensor if len(tensor.shape) == 2 else tf.reshape(tensor, [-1, tensor.shape[-1]])


def from_rows(rows: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """[rows, m] -> [..., m], with the leading dimensions of `like`."""
    if len(like.shape) == 2:
        return rows
    return tf.reshape(rows, tf.concat([tf.shape(like)[:-1], [rows.shape[-1]]], axis=0))


class Layer(tf.Module):
    """A layer that creates its variables on the first call."""

    def __init__(self, compute_dtype: tf.DType | str = tf.float32, name: str | None = None):
        """Creates a layer without variables.

        Args:
          compute_dtype: type of the arithmetic and the outputs; variables are float32. "auto" is
            bfloat16 if the accelerators that TensorFlow sees, or without any the processor, have
            instructions for it, and else float32.
          name: name of the module.
        """
        super().__init__(name=name)
        auto = compute_dtype == "auto"
        self.compute_dtype = _native_dtype() if auto else tf.as_dtype(compute_dtype)

    def add_variable(self, name: str, initial_value: Callable[[], tf.Tensor]) -> tf.Variable:
        """A trainable float32 variable, created outside any graph being traced."""
        with tf.init_scope(), self.name_scope:
            return tf.Variable(initial_value(), name=name, trainable=True)

    def cast(self, tensor: tf.Tensor) -> tf.Tensor:
        """Casts to `compute_dtype`."""
        return tf.cast(tensor, self.compute_dtype)


class LayerNorm(Layer):
    """Shifts and scales the last dimension to mean 0 and variance 1 (Ba et al. 2016).

    A trained scale and offset for each element follow.
    """

    def __init__(self, compute_dtype: tf.DType | str = tf.float32):
        """Creates a layer without variables; statistics are float32 in any case."""
        super().__init__(compute_dtype)
        self.scale: tf.Variable | None = None
        self.offset: tf.Variable | None = None

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        """[..., n] -> <compute_dtype>[..., n]."""
        if self.scale is None:
            shape = [_known(inputs.shape[-1], self.name)]
            self.scale = self.add_variable("scale", lambda: tf.ones(shape))
            self.offset = self.add_variable("offset", lambda: tf.zeros(shape))
        # `tf.nn.moments` and `tf.nn.batch_normalization` have more expensive gradients.
        inputs = tf.cast(inputs, tf.float32)
        centered = inputs - tf.reduce_mean(inputs, -1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centered), -1, keepdims=True)
        return self.cast(centered * tf.math.rsqrt(variance + 1e-6) * self.scale + self.offset)


class Dense(Layer):
    """activation(inputs @ kernel + bias), [..., n] -> [..., units]."""

    def __init__(
        self,
        units: int,
        activation: Activation | None = None,
        kernel_initializer: Initializer | None = None,
        compute_dtype: tf.DType | str = tf.float32,
        name: str | None = None,
        layer_norm: bool = False,
    ):
        """Creates a layer without variables.

        Args:
          units: number of outputs.
          activation: activation of the outputs.
          kernel_initializer: by default `variance_scaling()`.
          compute_dtype: type of the arithmetic and the outputs.
          name: name of the module.
          layer_norm: whether a `LayerNorm` precedes the activation.
        """
        super().__init__(compute_dtype, name)
        self._units = units
        self._norm = LayerNorm() if layer_norm else None
        self._activation = activation
        self._kernel_initializer = kernel_initializer or variance_scaling()
        self.kernel: tf.Variable | None = None
        self.bias: tf.Variable | None = None

    def __call__(self, inputs: tf.Tensor, use_float32: bool = False) -> tf.Tensor:
        """Applies the layer.

        Args:
          inputs: [..., n].
          use_float32: computes in float32, for the small batches of inference: casting a large
            kernel costs more than it saves on a few rows, whose product is memory-bound anyway.

        Returns:
          <compute_dtype>[..., units].
        """
        if self.kernel is None:
            shape = [_known(inputs.shape[-1], self.name), self._units]
            self.kernel = self.add_variable("kernel", lambda: self._kernel_initializer(shape))
            self.bias = self.add_variable("bias", lambda: tf.zeros([self._units]))
        dtype = tf.float32 if use_float32 else self.compute_dtype
        outputs = tf.matmul(tf.cast(to_rows(inputs), dtype), tf.cast(self.kernel, dtype))
        outputs = tf.nn.bias_add(outputs, tf.cast(self.bias, dtype))
        outputs = self._norm(outputs) if self._norm else outputs
        outputs = self.cast(self._activation(outputs) if self._activation else outputs)
        return from_rows(outputs, inputs)


class Conv2D(Layer):
    """activation(conv(inputs * input_scale) + bias), [batch, height, width, channels]."""

    def __init__(
        self,
        filters: int,
        kernel_size: int,
        stride: int = 1,
        padding: str = "VALID",
        activation: Activation | None = None,
        kernel_initializer: Initializer | None = None,
        input_scale: float = 1.0,
        compute_dtype: tf.DType | str = tf.float32,
        name: str | None = None,
        layer_norm: bool = False,
    ):
        """Creates a layer without variables.

        Args:
          filters: number of output channels.
          kernel_size: height and width of the kernel.
          stride: stride in both directions.
          padding: "VALID" or "SAME".
          activation: activation of the outputs.
          kernel_initializer: by default `variance_scaling()`.
          input_scale: factor of the inputs; applied to the kernel, which is much smaller.
          compute_dtype: type of the arithmetic and the outputs.
          name: name of the module.
          layer_norm: whether a `LayerNorm` of the channels precedes the activation.
        """
        super().__init__(compute_dtype, name)
        self._filters = filters
        self._kernel_size = kernel_size
        self._stride = stride
        self._padding = padding
        self._norm = LayerNorm(compute_dtype) if layer_norm else None
        self._activation = activation
        self._kernel_initializer = kernel_initializer or variance_scaling()
        self._input_scale = input_scale
        self.kernel: tf.Variable | None = None
        self.bias: tf.Variable | None = None

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        """Applies the layer to [batch, height, width, channels]."""
        if self.kernel is None:
            size, channels = self._kernel_size, _known(inputs.shape[-1], self.name)
            shape = [size, size, channels, self._filters]
            self.kernel = self.add_variable("kernel", lambda: self._kernel_initializer(shape))
            self.bias = self.add_variable("bias", lambda: tf.zeros([self._filters]))
        kernel = tf.convert_to_tensor(self.kernel)
        if self._input_scale != 1.0:
            kernel *= self._input_scale
        outputs = tf.nn.conv2d(
            self.cast(inputs), self.cast(kernel), self._stride, padding=self._padding
        )
        outputs = tf.nn.bias_add(outputs, self.cast(self.bias))
        outputs = self._norm(outputs) if self._norm else outputs
        return self._activation(outputs) if self._activation else outputs


@functools.cache
def _native_dtype() -> tf.DType:
    capabilities = [
        tf.config.experimental.get_device_details(gpu).get("compute_capability", (0, 0))
        for gpu in tf.config.get_visible_devices("GPU")
    ]
    if tf.config.list_logical_devices("TPU"):
        native = True
    elif capabilities:
        native = min(capabilities) >= _AMPERE
    else:  # TensorFlow uses the processor's instructions for bfloat16 through oneDNN alone.
        native = processor.multiplies_bfloat16() and os.environ.get("TF_ENABLE_ONEDNN_OPTS") != "0"
    return tf.bfloat16 if native else tf.float32


def _known(size: int | None, name: str) -> int:
    if size is None:
        raise ValueError(f"The last dimension of the input to layer {name} must be known.")
    return size


def batch_apply(fn: Callable[..., Nest], inputs: tuple[Nest, ...]) -> Nest:
    """Applies a function without a time dimension to unrolls by folding time into the batch.

    Args:
      fn: takes nests of [time * batch, ...] and returns a nest of the same leading dimension.
      inputs: its arguments, nests of [time, batch, ...].

    Returns:
      Nest of [time, batch, ...].
    """
    leading = tf.nest.flatten(inputs)[0]
    static = leading.shape[:2]
    time, batch = tf.unstack(tf.shape(leading)[:2])

    def fold(tensor: tf.Tensor) -> tf.Tensor:
        folded = tf.reshape(tensor, tf.concat([[time * batch], tf.shape(tensor)[2:]], 0))
        return tf.ensure_shape(folded, [None, *tensor.shape[2:]])

    def unfold(tensor: tf.Tensor) -> tf.Tensor:
        unfolded = tf.reshape(tensor, tf.concat([[time, batch], tf.shape(tensor)[1:]], 0))
        return tf.ensure_shape(unfolded, static.concatenate(tensor.shape[1:]))

    return tf.nest.map_structure(unfold, fn(*tf.nest.map_structure(fold, inputs)))
