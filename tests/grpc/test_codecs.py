"""The NumPy client with the op's server: both codecs of the wire format against each other."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
from hypothesis.extra import numpy as hnp

from seed_rl.common.types import EnvOutput
from seed_rl.grpc import ops, wire
from seed_rl.grpc.numpy_client import Client

SHAPES = hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4)


def tf_function(name, *signature):
    """A tf.function that returns its arguments (one: without a tuple)."""

    def fn(*args):
        result = tf.nest.map_structure(tf.identity, args)
        return result[0] if len(result) == 1 else result

    fn.__name__ = name
    return tf.function(fn, input_signature=signature)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server that echoes any tensor of each type, and some with structure."""
    address = f"unix:{tmp_path_factory.mktemp('codecs')}/s"
    server = ops.Server([address])
    for dtype in wire.DTYPE_NAMES:
        server.bind(tf_function(f"echo_{dtype}", tf.TensorSpec(None, dtype)))
    spec = EnvOutput(
        tf.TensorSpec([None], tf.float32),
        tf.TensorSpec([None], tf.bool),
        {"b": tf.TensorSpec([None, 2], tf.uint8), "a": tf.TensorSpec([None], tf.string)},
        tf.TensorSpec([None], tf.bool),
        tf.TensorSpec([None], tf.int32),
    )
    server.bind(tf_function("nest", tf.TensorSpec([None, 3], tf.int64), spec))
    server.start()
    yield address
    server.shutdown()


@pytest.fixture(scope="module")
def client(server):
    with Client(server) as client:
        yield client


def arrays(name):
    """Arrays of one type of the wire."""
    if name == "string":
        return hnp.arrays(np.dtype(object), SHAPES, elements=st.binary(max_size=20))
    if name == "bfloat16":
        dtype = wire.numpy_dtype(name)
        return hnp.arrays(np.float32, SHAPES).map(lambda array: array.astype(dtype))
    return hnp.arrays(np.dtype(name), SHAPES)


@pytest.mark.parametrize("name", wire.DTYPE_NAMES)
def test_every_type_and_shape(client, name):
    """What one codec writes the other reads, and back, to the bit."""

    @hypothesis.settings(deadline=None, max_examples=50)
    @hypothesis.given(arrays(name))
    def check(array):
        result = client.functions[f"echo_{name}"](array)
        assert (result.shape, result.dtype) == (array.shape, array.dtype)
        if name == "string":
            assert result.tolist() == array.tolist()
        else:
            assert result.tobytes() == array.tobytes()

    with np.errstate(over="ignore"):
        check()


@hypothesis.settings(deadline=None, max_examples=50)
@hypothesis.given(rows=st.none() | st.integers(1, 5), seed=st.integers(0, 2**32 - 1))
def test_nests(client, rows, seed):
    """Structures survive the server's description and the order of leaves is the same."""
    rng = np.random.default_rng(seed)
    lead = () if rows is None else (rows,)
    numbers = rng.integers(-(2**62), 2**62, (*lead, 3))
    text = np.empty(lead, object)
    text[...] = b"t\0" if rows is None else [rng.bytes(i) for i in range(rows)]
    env_output = EnvOutput(
        rng.random(lead, dtype=np.float32),
        np.array(rng.random(lead) < 0.5),
        {"a": text, "b": rng.integers(0, 255, (*lead, 2), np.uint8)},
        np.array(rng.random(lead) < 0.5),
        rng.integers(0, 9, lead, np.int32),
    )
    actual_numbers, actual = client.nest(numbers, env_output)
    assert type(actual).__name__ == "EnvOutput" and actual._fields == EnvOutput._fields
    np.testing.assert_array_equal(actual_numbers, numbers)
    tf.nest.map_structure(np.testing.assert_array_equal, EnvOutput(*actual), env_output)
    assert actual.observation["a"].tolist() == text.tolist()
    actual.reward[...] = 3  # Results are the caller's own.
