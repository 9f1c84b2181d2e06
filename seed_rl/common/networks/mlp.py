"""Several dense layers, and several such networks at once."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from seed_rl.common.networks.layers import (
    Activation,
    Dense,
    Initializer,
    Layer,
    from_rows,
    glorot,
    to_rows,
)


class MLP(tf.Module):
    """Dense layers; with `copies`, several MLPs of the same input that are computed as one."""

    def __init__(
        self,
        sizes: Sequence[int],
        hidden_activation: str | Activation | None = "relu",
        last_layer_activation: str | Activation | None = None,
        last_initializer: Initializer = glorot,
        copies: int | None = None,
        name: str = "mlp",
    ):
        """Creates layers without variables.

        Args:
          sizes: units of each layer.
          hidden_activation: of all layers but the last; its name in Keras, a function or None.
          last_layer_activation: of the last layer.
          last_initializer: of the last kernel; the others are `glorot`.
          copies: number of MLPs; None: one, without a dimension for copies.
          name: of the module.
        """
        super().__init__(name=name)
        self._copies = copies
        self._layers = []
        for i, size in enumerate(sizes):
            last = i == len(sizes) - 1
            activation = last_layer_activation if last else hidden_activation
            initializer = last_initializer if last else glorot
            options = (size, tf.keras.activations.get(activation), initializer)
            layer = DenseCopies(copies, *options) if copies else Dense(*options, name=f"dense_{i}")
            self._layers.append(layer)

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        """[..., n] -> [..., units]; with copies, [..., copies * units], one after the other."""
        if not self._copies:
            return self._apply(inputs)
        outputs = tf.transpose(self._apply(to_rows(inputs)), [1, 0, 2])
        rows = tf.reshape(outputs, [-1, outputs.shape[1] * outputs.shape[2]])
        return from_rows(rows, inputs)

    def _apply(self, inputs: tf.Tensor) -> tf.Tensor:
        for layer in self._layers:
            inputs = layer(inputs)
        return inputs


class DenseCopies(Layer):
    """Several dense layers as one batched product, with as many kernels and biases."""

    def __init__(
        self,
        copies: int,
        units: int,
        activation: Activation,
        kernel_initializer: Initializer,
    ):
        """Creates a layer without variables; see `Dense`."""
        super().__init__(name="dense_copies")
        self._copies = copies
        self._units = units
        self._activation = activation
        self._kernel_initializer = kernel_initializer
        self.kernel: tf.Variable | None = None
        self.bias: tf.Variable | None = None

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        """[rows, n] or [copies, rows, n] -> [copies, rows, units]."""
        if self.kernel is None:
            shape = [inputs.shape[-1], self._units]
            self.kernel = self.add_variable(
                "kernel",
                lambda: tf.stack([self._kernel_initializer(shape) for _ in range(self._copies)]),
            )
            self.bias = self.add_variable("bias", lambda: tf.zeros([self._copies, 1, self._units]))
        return self._activation(tf.matmul(inputs, self.kernel) + self.bias)
