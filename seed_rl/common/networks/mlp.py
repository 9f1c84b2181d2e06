"""Several dense layers, several such networks at once, and one beside an LSTM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from seed_rl.common.nest import Nest
from seed_rl.common.networks.layers import (
    Activation,
    Dense,
    Initializer,
    Layer,
    from_rows,
    glorot,
    to_rows,
)
from seed_rl.common.networks.recurrent import StackedLSTM


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


class FeedForwardBranch(tf.Module):
    """An MLP in the form of `LSTMwithFeedForwardBranch`; it ignores the recurrent input."""

    def __init__(self, mlp: MLP):
        """`mlp` is applied to the feed-forward input."""
        super().__init__(name="feed_forward_branch")
        self.mlp = mlp

    def initial_state(self, batch_size: int | tf.Tensor) -> tuple[()]:
        """The empty state."""
        del batch_size
        return ()

    def __call__(
        self,
        ff_input: tf.Tensor,
        recurrent_input: tf.Tensor,
        core_state: Nest,
        done: tf.Tensor,
        only_return_new_state: bool = False,
    ) -> Any:
        """See `LSTMwithFeedForwardBranch`."""
        del recurrent_input, done
        return core_state if only_return_new_state else (self.mlp(ff_input), core_state)


class LSTMwithFeedForwardBranch(tf.Module):
    """An LSTM over the history beside dense layers for the present (Peng et al. 2018, appendix B).

    Dense layers, then the LSTM, on one input; dense layers on the other; dense layers on both.
    """

    def __init__(
        self,
        lstm_sizes: Sequence[int],
        pre_mlp_sizes: Sequence[int],
        post_mlp_sizes: Sequence[int],
        ff_mlp_sizes: Sequence[int],
        hidden_activation: str | Activation | None = "relu",
        last_layer_activation: str | Activation | None = None,
        last_initializer: Initializer = glorot,
    ):
        """Creates layers without variables.

        Args:
          lstm_sizes: units of each LSTM layer.
          pre_mlp_sizes: units of the dense layers before the LSTM.
          post_mlp_sizes: units of the dense layers after both branches; the last are the outputs.
          ff_mlp_sizes: units of the dense layers of the feed-forward branch.
          hidden_activation: of all dense layers but the last.
          last_layer_activation: of the outputs.
          last_initializer: of the kernel of the outputs.
        """
        super().__init__(name="lstm_with_feed_forward_branch")
        hidden = (hidden_activation, hidden_activation)
        self._pre = MLP(pre_mlp_sizes, *hidden, name="pre")
        self._lstm = StackedLSTM(lstm_sizes, name="core")
        self._ff = MLP(ff_mlp_sizes, *hidden, name="ff")
        last = (hidden_activation, last_layer_activation, last_initializer)
        self._post = MLP(post_mlp_sizes, *last, name="post")

    def initial_state(self, batch_size: int | tf.Tensor) -> Nest:
        """State before an environment's first step."""
        return self._lstm.initial_state(batch_size)

    def __call__(
        self,
        ff_input: tf.Tensor,
        recurrent_input: tf.Tensor,
        core_state: Nest,
        done: tf.Tensor,
        only_return_new_state: bool = False,
    ) -> Any:
        """Runs an unroll.

        Args:
          ff_input: <float32>[time, batch, n].
          recurrent_input: <float32>[time, batch, m].
          core_state: before the first step.
          done: <bool>[time, batch], true where the state is reset before the step.
          only_return_new_state: whether the outputs are not needed.

        Returns:
          (outputs <float32>[time, batch, units], state after the last step), or only the state.
        """
        recurrent, core_state = self._lstm(self._pre(recurrent_input), core_state, done, True)
        if only_return_new_state:
            return core_state
        features = tf.concat([recurrent, self._ff(ff_input)], axis=-1)
        return self._post(features), core_state
