"""Contracts of calls: the errors that both clients report."""

import re

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.grpc import numpy_client, ops
from seed_rl.grpc.errors import CallError, ConnectionLost
from tests.helpers.op_helpers import Background, Gate, serving

VECTOR = tf.TensorSpec([2], tf.int32)
ROWS = tf.TensorSpec([None, 3], tf.int32)


@tf.function(input_signature=[VECTOR])
def alone(x):
    return tf.reduce_sum(x)


@tf.function(input_signature=[ROWS])
def batched(x):
    return x[:, 0]


@tf.function(input_signature=[tf.TensorSpec([4, 3], tf.int32)])
def fixed_batch(x):
    return x[:, 0]


@tf.function(input_signature=[ROWS, ROWS])
def two(x, y):
    return x[:, 0] + y[:, 0]


@tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
def scalar(x):
    return x


@tf.function(input_signature=[tf.TensorSpec([None, 2, 3], tf.int32)])
def frames(x):
    return x[:, 0, 0]


class Caller:
    """A client of either kind; `call` raises the kind's error for wrong arguments."""

    def __init__(self, kind, address):
        self.kind = kind
        self._client = (numpy_client if kind == "numpy" else ops).Client(address)
        self.error = CallError if kind == "numpy" else tf.errors.InvalidArgumentError
        self.gone = ConnectionLost if kind == "numpy" else tf.errors.UnavailableError

    def __call__(self, name, *args):
        function = getattr(self._client, name)
        if self.kind == "graph":
            return tf.function(lambda: function(*args))().numpy()
        return np.asarray(function(*args))

    def close(self):
        self._client.close()


@pytest.fixture(params=["numpy", "eager", "graph"])
def connect(request):
    callers = []

    def make(address):
        callers.append(Caller(request.param, address))
        return callers[-1]

    yield make
    for caller in callers:
        caller.close()


def ints(*shape):
    return np.ones(shape, np.int32)


WRONG = [
    # A list is a nest of arguments, whatever would fit its place; the number comes first.
    ("alone", ([42, 43],), r"Expects 1 arguments, but 2 is provided"),
    ("alone", (["a", "b", "c"],), r"Expects 1 arguments, but 3 is provided"),
    ("batched", ([ints(3), ints(3)],), r"Expects 1 arguments, but 2 is provided"),
    ("alone", ([],), r"Expects 1 arguments, but 0 is provided"),
    ("two", (ints(2, 3),), r"Expects 2 arguments, but 1 is provided"),
    # Types of all arguments, then shapes.
    ("two", (ints(9, 9), "a"), r"Expects arg\[1\] to be int32 but string is provided"),
    (
        "alone",
        (ints(2, 2),),
        r"Expects arg\[0\] to have shape with 1 dimension\(s\), but had shape \[2,2\]",
    ),
    ("alone", (42,), r"Expects arg\[0\] to have shape with 1 dimension\(s\), but had .* \[\]"),
    ("alone", (ints(3),), r"Expects arg\[0\] to have shape \[2\], but had shape \[3\]"),
    (
        "batched",
        (ints(3, 4),),
        r"Expects arg\[0\] to have shape with suffix \[3\], but had shape \[3,4\]",
    ),
    (
        "batched",
        (ints(4),),
        r"Expects arg\[0\] to have shape with suffix \[3\], but had shape \[4\]",
    ),
    (
        "fixed_batch",
        (ints(9, 5),),
        r"Expects arg\[0\] to have shape with suffix \[3\], but had shape \[9,5\]",
    ),
    (
        "scalar",
        (ints(1),),
        r"Expects arg\[0\] to have shape with 0 dimension\(s\), but had shape \[1\]",
    ),
    (
        "frames",
        (ints(2, 3, 3),),
        r"Expects arg\[0\] to have shape with suffix \[2,3\], but had shape \[2,3,3\]",
    ),
    ("fixed_batch", (ints(9, 3),), r"Expects a leading dimension from 1 to 4, but it is 9"),
    ("fixed_batch", (ints(0, 3),), r"Expects a leading dimension from 1 to 4, but it is 0"),
    (
        "two",
        (ints(2, 3), ints(4, 5)),
        r"Expects arg\[1\] to have shape with suffix \[3\], but had shape \[4,5\]",
    ),
    (
        "two",
        (ints(2, 3), ints(4, 3)),
        r"the same leading dimension, but arg\[0\] has 2 and arg\[1\] has 4",
    ),
    # One row of the first argument, a batch of the other, and the reverse.
    ("two", (ints(3), ints(2, 3)), r"arg\[1\] to have shape with 2 dimension\(s\), .* \[2,3\]"),
    ("two", (ints(2, 3), ints(3)), r"arg\[1\] to have shape with 2 dimension\(s\), .* \[3\]"),
]
"""(function, arguments, what the error says)"""


@pytest.fixture(scope="module")
def busy_address(shared_address):
    """Of a server for all calls with wrong arguments."""
    with serving(shared_address, alone, batched, fixed_batch, two, scalar, frames):
        yield shared_address


def error_of(call, name, args):
    try:
        return f"no error, but {call(name, *args)}"
    except call.error as error:
        return str(error)


def test_argument_errors(busy_address, connect):
    """Guards texts and order of the checks, alike in both clients, and a connection that lives."""
    call = connect(busy_address)
    for name, args, message in WRONG:
        error = error_of(call, name, args)
        assert re.search(message, error), f"{name}{args}: {error}"
        assert call("alone", ints(2)) == 2, f"after {name}{args}"
    with pytest.raises(AttributeError, match="no function 'nothing'.*alone"):
        call("nothing", 1)
    assert call("alone", ints(2)) == 2


@pytest.mark.parametrize("client", [numpy_client.Client, ops.Client])
def test_a_client_that_is_not_made_yet_has_no_functions(client):
    """Guards debuggers and copies, which look for attributes before there are any."""
    assert not hasattr(client.__new__(client), "nothing")


def test_a_list_of_the_right_number_is_taken_apart(socket_address, connect):
    """Guards lists as nests: `foo([x])` is `foo(x)`, and `foo([x, y])` is `foo(x, y)`."""
    with serving(socket_address, alone, two):
        call = connect(socket_address)
        assert call("alone", [ints(2)]) == 2
        assert call("two", [ints(3), ints(3)]) == 2


@pytest.mark.parametrize("connect", ["numpy"], indirect=True)  # The server's: one is enough.
def test_a_server_starts_again_after_shutdown(socket_address, free_port, connect):
    """Guards that it serves at the same addresses, a port it chose itself included, and that
    its functions, which the shutdown cancelled, run again.
    """
    gate, variable = Gate(), tf.Variable(1)

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
    def held(x):
        with tf.control_dependencies([gate.wait()]):
            return x + variable

    addresses = [socket_address, f"localhost:{free_port}", "localhost:0"]
    server = ops.Server(addresses)
    server.bind(held)
    server.start()
    server.set_status({"life": 1})
    ports = server.ports
    for life in range(3):
        for address in (socket_address, *(f"localhost:{port}" for port in ports[1:])):
            call = connect(address)
            gate.open()
            assert call("held", 4) == 5
        running = Background(call, "held", np.int32(1))
        gate.wait_until_entered(3 + 4 * life + 1)
        server.shutdown()
        with pytest.raises(call.gone, match="server closed"):
            running.result()
        server.start()
        assert server.ports == ports
        assert server.stats()["status"] == {"life": 1}
        with pytest.raises(tf.errors.InvalidArgumentError, match="Server is already started"):
            server.start()
    server.shutdown()


@pytest.mark.parametrize("connect", ["numpy"], indirect=True)  # The server's: one is enough.
def test_a_function_may_be_bound_between_shutdown_and_start(socket_address, connect):
    """Guards redundant shutdowns, too."""
    server = ops.Server([socket_address])
    server.bind(alone)
    server.shutdown()
    server.start()
    server.shutdown()
    server.shutdown()
    server.bind(batched)
    server.start()
    call = connect(socket_address)
    assert call("alone", ints(2)) == 2
    assert call("batched", ints(1, 3)) == [1]
    server.shutdown()
