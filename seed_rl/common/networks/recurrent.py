"""LSTMs over time-major unrolls that span episodes (Hochreiter & Schmidhuber 1997)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from seed_rl.common.networks.layers import (
    Layer,
    from_rows,
    orthogonal,
    to_rows,
    variance_scaling,
)


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
    previous hidden state is computed step by step.
    """

    def __init__(
        self, size: int, compute_dtype: tf.DType | str = tf.float32, name: str | None = None
    ):
        """Creates a layer without variables.

        Args:
          size: size of the hidden state and the cell.
          compute_dtype: type of the matrix products of unrolls; the state is float32.
          name: name of the module.
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
          state: state before the first step.
          done: <bool>[batch] or [time, batch]; true where the state is reset before the step.
          unroll: whether there is a time dimension.

        Returns:
          (<float32>[batch, size] or [time, batch, size], state after the last step).
        """
        self._build(inputs.shape[-1])
        # On the few rows of inference, casting the kernels would cost more than it saves.
        dtype = self.compute_dtype if unroll else tf.float32
        recurrent_kernel = tf.cast(self.recurrent_kernel, dtype)
        rows = tf.matmul(tf.cast(to_rows(inputs), dtype), tf.cast(self.input_kernel, dtype))
        projected = from_rows(tf.cast(rows, tf.float32) + self.bias, inputs)
        keep = tf.cast(tf.logical_not(done), tf.float32)[..., tf.newaxis]
        if not unroll:
            _, hidden, cell = _step(projected, recurrent_kernel, keep, *state)
            return hidden, LSTMState(hidden, cell)
        hidden, cell = _unroll(projected, recurrent_kernel, keep, *state)
        return hidden, LSTMState(hidden[-1], cell[-1])

    def _build(self, num_inputs: int) -> None:
        if self.input_kernel is not None:
            return
        size = self._size
        # In the order input gate, forget gate, output gate, candidate. A forget gate that starts
        # mostly open lets gradients reach far back (Jozefowicz et al. 2015).
        self.input_kernel = self.add_variable(
            "input_kernel", lambda: variance_scaling()([num_inputs, 4 * size])
        )
        self.recurrent_kernel = self.add_variable(
            "recurrent_kernel", lambda: orthogonal([size, 4 * size])
        )
        self.bias = self.add_variable(
            "bias",
            lambda: tf.concat([tf.zeros([size]), tf.ones([size]), tf.zeros([2 * size])], axis=0),
        )


def _step(
    projected: tf.Tensor,
    recurrent_kernel: tf.Tensor,
    keep: tf.Tensor,
    hidden: tf.Tensor,
    cell: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """One step of one layer.

    Args:
      projected: <float32>[batch, 4 size], inputs times their weights, plus bias.
      recurrent_kernel: <compute_dtype>[size, 4 size].
      keep: <float32>[batch, 1], 0 where the state is reset before the step, 1 elsewhere.
      hidden: <float32>[batch, size], hidden state before the step.
      cell: <float32>[batch, size], cell before the step.

    Returns:
      (input gate, forget gate, output gate and candidate <float32>[batch, 4 size], hidden, cell).
    """
    size = cell.shape[-1]
    hidden, cell = _kept(hidden, keep), _kept(cell, keep)
    recurrent = tf.matmul(tf.cast(hidden, recurrent_kernel.dtype), recurrent_kernel)
    gates, candidate = tf.split(
        projected + tf.cast(recurrent, tf.float32), [3 * size, size], axis=-1
    )
    gates, candidate = tf.sigmoid(gates), tf.tanh(candidate)
    input_gate, forget_gate, output_gate = tf.split(gates, 3, axis=-1)
    cell = forget_gate * cell + input_gate * candidate
    return tf.concat([gates, candidate], axis=-1), output_gate * tf.tanh(cell), cell


@tf.custom_gradient
def _unroll(
    projected: tf.Tensor,
    recurrent_kernel: tf.Tensor,
    keep: tf.Tensor,
    hidden: tf.Tensor,
    cell: tf.Tensor,
) -> tuple[tuple[tf.Tensor, tf.Tensor], Any]:
    """All steps of an unroll.

    The arguments are those of `_step`; `projected` and `keep` have a time dimension.

    TensorFlow's own gradient of the loop would accumulate the kernel's gradient step by step, each
    time reading and writing as much memory as the kernel occupies. Here the loop computes only the
    gradients of the preactivations; one product over all steps then yields the kernel's.

    Returns:
      ((hidden, cell) <float32>[time, batch, size], function from their gradients to those of the
      arguments).
    """
    # A loop: unrolled in the graph, 120 steps take seconds to trace and run no faster.
    activations, hiddens, cells = tf.scan(
        lambda before, xs: _step(xs[0], recurrent_kernel, xs[1], before[1], before[2]),
        (projected, keep),
        initializer=(tf.zeros_like(projected[0]), hidden, cell),
    )

    def gradient(d_hiddens: tf.Tensor, d_cells: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        hiddens_before = _kept(tf.concat([hidden[tf.newaxis], hiddens[:-1]], axis=0), keep)
        cells_before = _kept(tf.concat([cell[tf.newaxis], cells[:-1]], axis=0), keep)
        inputs, forgets, outputs, candidates = tf.split(activations, 4, axis=-1)
        squashed = tf.tanh(cells)
        hidden_to_cell = outputs * (1.0 - tf.square(squashed))
        # Factors from the cell's gradient to those of the preactivations; for the output gate, from
        # the hidden state's gradient.
        slopes = tf.concat(
            [
                candidates * inputs * (1.0 - inputs),
                cells_before * forgets * (1.0 - forgets),
                squashed * outputs * (1.0 - outputs),
                inputs * (1.0 - tf.square(candidates)),
            ],
            axis=-1,
        )

        def step_back(after: tuple[tf.Tensor, ...], xs: tuple[tf.Tensor, ...]) -> Any:
            _, d_hidden, d_cell = after
            d_hidden_here, d_cell_here, slope, to_cell, forget, keep = xs
            d_hidden = d_hidden + d_hidden_here
            d_cell = d_cell + d_cell_here + d_hidden * to_cell
            d_projected = slope * tf.concat([d_cell, d_cell, d_hidden, d_cell], axis=-1)
            d_recurrent = tf.cast(d_projected, recurrent_kernel.dtype)
            d_hidden = tf.matmul(d_recurrent, recurrent_kernel, transpose_b=True)
            d_hidden = _kept(tf.cast(d_hidden, tf.float32), keep)
            return d_projected, d_hidden, _kept(d_cell * forget, keep)

        d_projected, d_hidden, d_cell = tf.scan(
            step_back,
            (d_hiddens, d_cells, slopes, hidden_to_cell, forgets, keep),
            initializer=(tf.zeros_like(projected[0]), tf.zeros_like(hidden), tf.zeros_like(cell)),
            reverse=True,
        )
        d_kernel = tf.matmul(
            tf.cast(to_rows(hiddens_before), recurrent_kernel.dtype),
            tf.cast(to_rows(d_projected), recurrent_kernel.dtype),
            transpose_a=True,
        )
        return d_projected, d_kernel, None, d_hidden[0], d_cell[0]

    return (hiddens, cells), gradient


def _kept(state: tf.Tensor, keep: tf.Tensor) -> tf.Tensor:
    """`state`, but 0 where `keep` is 0, even if `state` is NaN there."""
    return tf.math.multiply_no_nan(state, keep)


class StackedLSTM(tf.Module):
    """A stack of LSTM layers; without any, inputs pass unchanged."""

    def __init__(
        self,
        sizes: Sequence[int],
        compute_dtype: tf.DType | str = tf.float32,
        name: str | None = None,
    ):
        """Creates layers without variables.

        Args:
          sizes: size of each layer, from input to output; 0: no layer.
          compute_dtype: type of the matrix products.
          name: name of the module.
        """
        super().__init__(name=name)
        sizes = [size for size in sizes if size]
        self._layers = [LSTM(size, compute_dtype, f"lstm_{i}") for i, size in enumerate(sizes)]

    def initial_state(self, batch_size: int | tf.Tensor) -> tuple[LSTMState, ...]:
        """State before the first step, one element per layer."""
        return tuple(layer.initial_state(batch_size) for layer in self._layers)

    def __call__(
        self,
        inputs: tf.Tensor,
        state: tuple[LSTMState, ...],
        done: tf.Tensor,
        unroll: bool = False,
    ) -> tuple[tf.Tensor, tuple[LSTMState, ...]]:
        """Runs one step or all steps of an unroll, as `LSTM`; `state` has one element per layer."""
        new_state = []
        for layer, layer_state in zip(self._layers, state, strict=True):
            inputs, layer_state = layer(inputs, layer_state, done, unroll)
            new_state.append(layer_state)
        return inputs, tuple(new_state)
