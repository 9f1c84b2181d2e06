"""LSTMs against NumPy, and unrolls against steps."""

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.networks.layers import Dense
from seed_rl.common.networks.recurrent import LSTM, LSTMState, StackedLSTM


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def random_inputs(seed, num_steps, batch, size, p_done=0.3):
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(num_steps, batch, size)).astype(np.float32)
    return inputs, rng.random((num_steps, batch)) < p_done


def random_state(core, batch):
    rng = np.random.default_rng(0)
    return tf.nest.map_structure(
        lambda t: tf.constant(rng.normal(size=t.shape), tf.float32), core.initial_state(batch)
    )


def test_equals_numpy_with_resets():
    lstm = LSTM(4)
    inputs, done = random_inputs(0, 9, 3, 5)
    assert done.any() and not done.all()
    state = random_state(lstm, 3)
    outputs, final = lstm(tf.constant(inputs), state, tf.constant(done), unroll=True)
    w, u, bias = (v.numpy() for v in (lstm.input_kernel, lstm.recurrent_kernel, lstm.bias))
    h, c = (x.numpy().astype(np.float64) for x in state)
    for t in range(9):
        h, c = (np.where(done[t][:, None], 0.0, x) for x in (h, c))
        i, f, o, g = np.split(inputs[t] @ w + h @ u + bias, 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        np.testing.assert_allclose(outputs[t], h, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(final.hidden, h, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(final.cell, c, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sizes", [(), (6,), (6, 4)], ids=str)
def test_an_unroll_equals_its_steps(sizes):
    """Inference steps and training unrolls must see the same state, resets included."""
    core = StackedLSTM(sizes)
    inputs, done = random_inputs(1, 8, 3, 5)
    state = start = random_state(core, 3)
    outputs, final = core(tf.constant(inputs), start, tf.constant(done), unroll=True)
    for t in range(8):
        output, state = core(tf.constant(inputs[t]), state, tf.constant(done[t]))
        np.testing.assert_allclose(output, outputs[t], rtol=1e-5, atol=1e-6)
    tf.nest.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), state, final
    )


def test_no_gradient_crosses_an_episode_start():
    lstm = LSTM(4)
    inputs, _ = random_inputs(2, 5, 2, 3)
    done = np.zeros((5, 2), bool)
    done[3, 0] = True
    inputs = tf.constant(inputs)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs, _ = lstm(inputs, lstm.initial_state(2), tf.constant(done), unroll=True)
        last = tf.reduce_sum(outputs[4])
    gradient = tape.gradient(last, inputs).numpy()
    assert not gradient[:3, 0].any() and gradient[3:, 0].all()
    assert gradient[:, 1].all()


def test_a_new_episode_forgets_what_is_not_a_number():
    """Guards an environment that gave NaN once: its state must not be NaN forever."""
    lstm = LSTM(4)
    inputs, done = random_inputs(5, 5, 2, 3, p_done=0.0)
    inputs[1, 0], done[3, 0] = np.nan, True
    inputs, done = tf.constant(inputs), tf.constant(done)
    outputs, final = lstm(inputs, lstm.initial_state(2), done, unroll=True)
    assert np.isnan(outputs[1:3, 0]).all()
    assert np.isfinite(outputs[3:]).all() and np.isfinite(final.cell).all()
    bad = tf.constant(np.nan, shape=[2, 4])
    one_step, _ = lstm(inputs[3], LSTMState(bad, bad), tf.constant([True, True]))
    np.testing.assert_allclose(one_step[0], outputs[3, 0], rtol=1e-5)


def test_gradients_of_an_unroll_equal_those_of_its_steps():
    """Unrolls have a hand-written gradient; steps have TensorFlow's."""
    lstm = LSTM(4)
    inputs, done = random_inputs(3, 6, 2, 3)
    assert done[1:].any()
    inputs, done, start = tf.constant(inputs), tf.constant(done), random_state(lstm, 2)
    lstm(inputs[0], start, done[0])
    weights = tf.constant(np.random.default_rng(4).normal(size=(6, 2, 4)), tf.float32)
    sources = (inputs, start, lstm.trainable_variables)

    @tf.function
    def unrolled():
        with tf.GradientTape() as tape:
            tape.watch([inputs, start])
            outputs, final = lstm(inputs, start, done, unroll=True)
            loss = tf.reduce_sum(weights * outputs) + tf.reduce_sum(tf.square(final.cell))
        return tape.gradient(loss, sources)

    with tf.GradientTape() as tape:
        tape.watch([inputs, start])
        state, loss = start, 0.0
        for t in range(6):
            output, state = lstm(inputs[t], state, done[t])
            loss += tf.reduce_sum(weights[t] * output)
        loss += tf.reduce_sum(tf.square(state.cell))
    expected = tape.gradient(loss, sources)
    for one, other in zip(tf.nest.flatten(unrolled()), tf.nest.flatten(expected), strict=True):
        assert np.any(other)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_an_unroll_is_multiplied_as_one_matrix():
    """Guards the gradients of kernels from being computed for each step and then added."""
    lstm, dense = LSTM(4), Dense(3)
    inputs, done = map(tf.constant, random_inputs(5, 6, 2, 3))
    dense(lstm(inputs, lstm.initial_state(2), done, unroll=True)[0])

    @tf.function
    def gradient():
        with tf.GradientTape() as tape:
            hidden, _ = lstm(inputs, lstm.initial_state(2), done, unroll=True)
            loss = tf.reduce_sum(tf.square(dense(hidden)))
        return tape.gradient(loss, (lstm.trainable_variables, dense.trainable_variables))

    graph = gradient.get_concrete_function().graph.as_graph_def()
    nodes = [*graph.node, *(node for called in graph.library.function for node in called.node_def)]
    ops = {node.op for node in nodes}
    assert "MatMul" in ops and not any(op.startswith("BatchMatMul") for op in ops)


def test_bfloat16_keeps_a_float32_state_close_to_float32s():
    """The cell sums over many steps, which bfloat16 with its 8 bits could not."""
    lstm, half = LSTM(16), LSTM(16, tf.bfloat16)
    inputs, done = random_inputs(4, 20, 2, 8, p_done=0.0)
    arguments = (tf.constant(inputs), lstm.initial_state(2), tf.constant(done), True)
    exact, _ = lstm(*arguments)
    half(*arguments)
    for ours, theirs in zip(half.variables, lstm.variables, strict=True):
        ours.assign(theirs)
    outputs, state = half(*arguments)
    assert outputs.dtype == state.cell.dtype == tf.float32
    assert all(v.dtype == tf.float32 for v in half.variables)
    np.testing.assert_allclose(outputs, exact, atol=0.05)


def test_variables_are_made_inside_a_traced_function():
    lstm = LSTM(4)
    step = tf.function(lambda x: lstm(x, lstm.initial_state(2), tf.zeros([2], tf.bool)))
    output, state = step(tf.ones([2, 3]))
    assert output.shape == (2, 4) and isinstance(state, LSTMState)
    assert len(lstm.trainable_variables) == 3
