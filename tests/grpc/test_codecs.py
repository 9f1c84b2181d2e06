"""The NumPy client with the op's server: both codecs of the wire format against each other."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
from hypothesis.extra import numpy as hnp

from seed_rl.grpc import ops, wire
from seed_rl.grpc.numpy_client import Client

SHAPES = hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server that echoes any tensor of each type."""
    address = f"unix:{tmp_path_factory.mktemp('codecs')}/s"
    server = ops.Server([address])
    for dtype in wire.DTYPE_NAMES:

        def echo(x):
            return tf.identity(x)

        echo.__name__ = f"echo_{dtype}"
        server.bind(tf.function(echo, input_signature=[tf.TensorSpec(None, dtype)]))
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
