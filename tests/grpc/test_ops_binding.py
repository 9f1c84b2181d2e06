"""What can be bound to a server of the op: functions of all forms, devices and compilers."""

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.grpc import ops
from tests.helpers import PROGRAMS, run_python
from tests.helpers.op_helpers import (
    INTS,
    add_one,
    rows_seen,
    serving,
    static,
    values,
)


def test_what_cannot_be_bound(socket_address):
    """Guards mistakes in binding, each with a message that names it."""
    server = ops.Server([socket_address])
    with pytest.raises(tf.errors.UnavailableError, match="No function was bound"):
        server.start()
    with pytest.raises(ValueError, match="is not a tf.function"):
        server.bind(lambda x: x)
    with pytest.raises(ValueError, match="foo needs an input_signature"):

        @tf.function
        def foo(x):
            return x

        server.bind(foo)
    with pytest.raises(ValueError, match="different signatures"):
        server.bind([static(2), static(3)])
    with pytest.raises(ValueError, match="complex64, .* cannot be sent"):
        server.bind(
            tf.function(add_one.python_function, input_signature=[tf.TensorSpec([], tf.complex64)])
        )
    server.bind(add_one)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Function 'add_one' was bound twice."):
        server.bind(add_one)
    server.start()
    for action in (server.start, lambda: server.bind(rows_seen)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="Server is already started"):
            action()
    server.shutdown()
    with pytest.raises(tf.errors.InvalidArgumentError, match="server_addresses must be a vector"):
        ops.Server(socket_address)
    with pytest.raises(tf.errors.InvalidArgumentError, match="server_address must be a scalar"):
        ops.Client([socket_address])


@pytest.mark.slow
def test_statistics_while_functions_are_bound(forks):
    """Guards the process: statistics once read the list of functions while it grew."""
    forks.run(PROGRAMS / "server_program.py", "bind_while_asked", code=0)


def test_functions_without_arguments_or_results(socket_address):
    """Guards the smallest frames, and functions that are bound without a signature."""
    counter = tf.Variable(0)

    @tf.function
    def bump():
        counter.assign_add(1)

    @tf.function
    def read():
        return counter + 0

    with serving(socket_address, bump, read):
        client = ops.Client(socket_address)
        assert client.bump() is None
        assert values(client.read()) == 1


@pytest.mark.slow
def test_functions_on_several_devices_and_exit_without_shutdown(socket_address):
    """Guards graphs with variables of other devices, and programs that never shut down."""
    program = PROGRAMS / "server_program.py"
    result = run_python(program, "from_devices", socket_address, code=0)
    devices = {line.rsplit("/", 1)[-1] for line in result.stdout.split()}
    assert devices == {"device:CPU:1", "device:CPU:2"}


def test_functions_that_xla_compiles_are_compiled(socket_address):
    """Guards jit_compile: what XLA does not know is an error, as when the function is called."""

    @tf.function(input_signature=[INTS], jit_compile=True)
    def known(x):
        return x + 1

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], jit_compile=True)
    def unknown(x):
        return tf.strings.join([x, "!"])

    with serving(socket_address, known, unknown):
        client = ops.Client(socket_address)
        assert values(client.known(np.int32([1, 2, 3]))) == [2, 3, 4]
        with pytest.raises(tf.errors.InvalidArgumentError, match="tf2xla conversion failed"):
            client.unknown(np.array(["a"]))
