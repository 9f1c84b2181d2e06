"""LSTMs over time-major unrolls in which episodes end (Hochreiter & Schmidhuber 1997)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from seed_rl.common.layers import Layer, orthogonal, variance_scaling


class LSTMState(NamedTuple):
    """State of one LSTM layer; zeros at the start of an episode.

    Attributes:
      hidden: <float32>[batch, size], also the layer's output.
      cell: <float32>[batch, size].
    """

    hidden: tf.Tensor
    cell: tf.Tensor


class LSTM(Layer):
    """One LSTM layer whose state is reset where an episode begins.

    The inputs of all steps are multiplied by their weights at once; only the product with the
    previous hidden state is made step by step.
    """

    def __init__(
        self, size: int, compute_dtype: tf.DType | str = tf.float32, name: str | None = None
    ):
        """Makes a layer without variables.

        Args:
          size: of hidden state and cell.
          compute_dtype: of the matrix products of unrolls; the state is float32.
          name: of the module.
        """
        super().__init__(compute_dtype, name)
        self._size = size
        self.input_kernel: tf.Variable | None = None
        self.recurrent_kernel: tf.Variable | None = None
        self.bias: tf.Variable | None = None

    def initial_state(self, batch_size: int | tf.Tensor) -> LSTMState:
        """State before the first step."""
        zeros = tf.zeros([batch_size, self._size])
        return LSTMState(zeros, zeros)

    def __call__(
        self, inputs: tf.Tensor, state: LSTMState, done: tf.Tensor, unroll: bool = False
    ) -> tuple[tf.Tensor, LSTMState]:
        """Runs one step, or all steps of an unroll.

        Args:
          inputs: [batch, n], or [time, batch, n] if `unroll`.
          state: before the first step.
          done: <bool>[batch] or [time, batch]; where true, the state is reset before the step.
          unroll: whether there is a time dimension.

        Returns:
          (<float32>[batch, size] or [time, batch, size], state after the last step).
        """
        self._build(inputs.shape[-1])
        # On a few rows, as in inference, casting the kernels would cost more than it saves.
        dtype = self.compute_dtype if unroll else tf.float32
        recurrent_kernel = tf.cast(self.recurrent_kernel, dtype)
        inputs = tf.matmul(tf.cast(inputs, dtype), tf.cast(self.input_kernel, dtype))
        inputs = tf.cast(inputs, tf.float32) + self.bias
        keep = tf.cast(tf.logical_not(done), tf.float32)[..., tf.newaxis]

        def step(state: LSTMState, xs: tuple[tf.Tensor, tf.Tensor]) -> LSTMState:
            projected, keep = xs
            recurrent = tf.matmul(tf.cast(state.hidden * keep, dtype), recurrent_kernel)
            preactivations = projected + tf.cast(recurrent, tf.float32)
            gates, candidate = tf.split(preactivations, [3 * self._size, self._size], axis=-1)
            input_gate, forget_gate, output_gate = tf.split(tf.sigmoid(gates), 3, axis=-1)
            cell = forget_gate * (state.cell * keep) + input_gate * tf.tanh(candidate)
            return LSTMState(output_gate * tf.tanh(cell), cell)

        state = LSTMState(*state)
        if not unroll:
            state = step(state, (inputs, keep))
            return state.hidden, state
        # A loop: written out, an unroll of 120 steps takes seconds to trace and runs no faster.
        states = tf.scan(step, (inputs, keep), initializer=state)
        return states.hidden, LSTMState(states.hidden[-1], states.cell[-1])

    def _build(self, num_inputs: int) -> None:
        if self.input_kernel is not None:
            return
        size = self._size
        # The order is input, forget and output gate, candidate. A forget gate that is mostly open
        # at first lets gradients reach far back (Jozefowicz et al. 2015).
        self.input_kernel = self.add_variable(
            "input_kernel", lambda: variance_scaling()([num_inputs, 4 * size])
        )
        self.recurrent_kernel = self.add_variable(
            "recurrent_kernel", lambda: orthogonal()([size, 4 * size])
        )
        self.bias = self.add_variable(
            "bias",
            lambda: tf.concat([tf.zeros([size]), tf.ones([size]), tf.zeros([2 * size])], axis=0),
        )


class StackedLSTM(tf.Module):
    """LSTM layers on top of each other; with no layers, inputs pass unchanged."""

    def __init__(
        self,
        sizes: Sequence[int],
        compute_dtype: tf.DType | str = tf.float32,
        name: str | None = None,
    ):
        """Makes layers without variables.

        Args:
          sizes: of each layer, from the input on.
          compute_dtype: of the matrix products.
          name: of the module.
        """
        super().__init__(name=name)
        self._layers = [LSTM(size, compute_dtype, f"lstm_{i}") for i, size in enumerate(sizes)]

    def initial_state(self, batch_size: int | tf.Tensor) -> tuple[LSTMState, ...]:
        """State before the first step, one per layer."""
        return tuple(layer.initial_state(batch_size) for layer in self._layers)

    def __call__(
        self,
        inputs: tf.Tensor,
        state: tuple[LSTMState, ...],
        done: tf.Tensor,
        unroll: bool = False,
    ) -> tuple[tf.Tensor, tuple[LSTMState, ...]]:
        """As `LSTM`, with one state per layer."""
        new_state = []
        for layer, layer_state in zip(self._layers, state, strict=True):
            inputs, layer_state = layer(inputs, layer_state, done, unroll)
            new_state.append(layer_state)
        return inputs, tuple(new_state)
