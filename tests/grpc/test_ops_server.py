"""Beginning and end of the op's servers and clients; addresses and deadlines."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.grpc import ops
from seed_rl.grpc.channel_options import ClientOptions, ServerOptions
from tests.helpers import PROGRAMS
from tests.helpers.op_helpers import (
    INT,
    Background,
    Gate,
    double,
    gated,
    serving,
    values,
    wait_for_waiting,
)
from tests.helpers.scripted_server import Scripted
from tests.helpers.waiting import wait_until

# --- Ends.


def test_shutdown_fails_running_and_waiting_calls(socket_address):
    """Guards that a learner's shutdown does not stop actors, whatever its functions wait for."""
    gate = Gate()
    with serving(socket_address, gated(gate), double) as server:
        clients = [ops.Client(socket_address) for _ in range(3)]
        running = Background(clients[0].foo, 1)
        gate.wait_until_entered(1)
        waiting = Background(clients[1].foo, 1)
        wait_for_waiting(server, "foo", 1)
        server.shutdown()
        for call in (running, waiting):
            with pytest.raises(tf.errors.UnavailableError, match="server closed"):
                call.result()
        with pytest.raises(tf.errors.UnavailableError, match="server closed"):
            clients[2].double(1)
        server.shutdown()  # Again is fine.


@pytest.mark.slow
def test_forked_children_leave_the_server_alone(forks, socket_address):
    """Guards a parent's server and clients from children that exit, which clean up behind them."""
    program = forks.run(PROGRAMS / "server_program.py", "fork", socket_address, code=0)
    assert program.stdout == "2 4\n" * 4 + "6\n"


def test_a_function_that_blocks_its_thread_stops_nobody(socket_address):
    """Guards network threads: functions do not run there, however quick they have been so far."""
    staged = {"capacity": 0, "memory_limit": 0, "container": "", "shared_name": "blocking"}
    entered = tf.Variable(0)

    @tf.function(input_signature=[INT])
    def take(x):
        with tf.control_dependencies([entered.assign_add(1)]):
            return x + tf.raw_ops.Unstage(dtypes=[tf.int32], **staged)[0]  # Not asynchronous.

    calls = 300
    for _ in range(calls):
        tf.raw_ops.Stage(values=[1], **staged)
    with serving(socket_address, take, double, options=ServerOptions(threads=1)):
        client, other = ops.Client(socket_address), ops.Client(socket_address)
        for i in range(calls):
            assert values(client.take(i)) == i + 1
        blocked = Background(client.take, 5)
        wait_until(lambda: entered.numpy() == calls + 1)
        try:
            assert values(Background(other.double, 1).result()) == 2
            assert values(ops.Client(socket_address).double(2)) == 4
        finally:
            tf.raw_ops.Stage(values=[2], **staged)  # It cannot be cancelled.
        assert values(blocked.result()) == 7


def test_shutdown_fails_calls_that_wait_for_a_static_batch(socket_address):
    """Guards the callers of a batch that will never be full."""

    @tf.function(input_signature=[tf.TensorSpec([5], tf.int32)])
    def foo(x):
        return x

    with serving(socket_address, foo) as server:
        calls = [Background(ops.Client(socket_address).foo, np.int32([1, 2])) for _ in range(2)]
        wait_for_waiting(server, "foo", 2)
    for call in calls:
        with pytest.raises(tf.errors.UnavailableError, match="server closed"):
            call.result()


def test_a_dropped_server_ends_by_itself(socket_address):
    """Guards programs that drop their server without shutting it down."""
    server = ops.Server([socket_address])
    server.bind(double)
    server.start()
    client = ops.Client(socket_address)
    del server

    def gone():
        try:
            client.double(1)
        except tf.errors.UnavailableError:
            return True
        return False

    wait_until(gone)


class Resetting(Scripted):
    """Resets streams at their first message."""

    def _call(self, requests, context):
        next(requests)
        context.cancel()
        yield b""


def test_a_stream_that_the_server_resets(socket_address):
    """Guards against a spurious CANCELLED, which gRPC sends while a server shuts down."""
    with Resetting(socket_address, None):
        client = ops.Client(socket_address)
        for _ in range(2):
            with pytest.raises(tf.errors.UnavailableError, match="server closed"):
                client.foo(1)


def test_a_closed_client(socket_address):
    """Guards close: pending calls end, later ones fail, the server forgets the connection."""
    gate = Gate()
    with serving(socket_address, gated(gate)) as server:
        client = ops.Client(socket_address)
        call = Background(client.foo, 1)
        gate.wait_until_entered(1)
        client.close()
        client.close()
        with pytest.raises(tf.errors.CancelledError, match="client closed"):
            call.result()
        with pytest.raises(tf.errors.CancelledError, match="client closed"):
            client.foo(1)
        wait_until(lambda: server.stats()["connections"] == 0)


def test_a_client_killed_in_its_call_harms_nobody(socket_address):
    """Guards against actors that die: their rows run, the reply is dropped, others continue."""
    gate = Gate()
    with serving(socket_address, gated(gate)) as server:
        client = [sys.executable, PROGRAMS / "client_program.py", "call_once", socket_address]
        victim = subprocess.Popen(client)
        gate.wait_until_entered(1)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        wait_until(lambda: server.stats()["connections"] == 0)
        gate.open(2)
        doubled, _ = ops.Client(socket_address).foo(np.int32([5]))
        assert values(doubled) == [10]


@pytest.mark.slow
def test_a_server_killed_in_a_call_fails_it(socket_address):
    """Guards clients against learners that die silently, and the socket file they leave."""
    server = subprocess.Popen(
        [sys.executable, PROGRAMS / "server_program.py", "never_return", socket_address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with server:
        call = Background(ops.Client(socket_address).foo, 1)
        assert b"running" in server.stdout.readline()
        server.kill()
        with pytest.raises(tf.errors.UnavailableError):
            call.result()
    assert os.path.exists(socket_address.removeprefix("unix:"))
    with serving(socket_address, double):
        assert values(ops.Client(socket_address).double(1)) == 2


# --- Addresses and deadlines.


def test_a_client_may_come_before_the_server(socket_address):
    """Guards actors that start first."""
    client = Background(ops.Client, socket_address)
    with serving(socket_address, double):
        assert values(client.result().double(2)) == 4


def test_connecting_has_a_deadline(socket_address, free_port):
    """Guards against waiting forever for a missing learner; the message says what to check."""
    options = ClientOptions(connect_timeout_s=0.3)
    for address in (socket_address, f"localhost:{free_port}"):
        with pytest.raises(tf.errors.UnavailableError) as caught:
            ops.Client(address, options)
        assert f"No server at {address} within 0.3 s; is the learner running" in str(caught.value)


def test_a_call_has_a_deadline_if_asked(socket_address):
    """Guards call_timeout_s: the call fails, the connection stays."""
    gate = Gate()
    with serving(socket_address, gated(gate), double):
        client = ops.Client(socket_address, ClientOptions(call_timeout_s=0.2))
        with pytest.raises(tf.errors.DeadlineExceededError, match="call_timeout_s"):
            client.foo(1)

        def doubled():
            with contextlib.suppress(tf.errors.DeadlineExceededError):  # A busy machine.
                return values(client.double(1))

        assert wait_until(doubled) == 2


def test_addresses_that_are_taken(socket_address, free_port, tmp_path):
    """Guards that no server takes another's address, and that the message names it."""
    path = socket_address.removeprefix("unix:")
    addresses = [socket_address, f"localhost:{free_port}"]
    with serving(addresses, double) as first:
        assert first.ports == [0, free_port]
        for address, message in [
            (addresses[0], f"Another server is listening on {socket_address}"),
            (addresses[1], f"Cannot listen on localhost:{free_port}: the port is in use"),
        ]:
            server = ops.Server([address])
            server.bind(double)
            with pytest.raises(tf.errors.UnavailableError, match=message):
                server.start()
            # The failed attempt took nothing away.
            assert values(ops.Client(address).double(1)) == 2
    server.start()  # Now it is free.
    assert values(ops.Client(addresses[1]).double(1)) == 2
    server.shutdown()

    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(path)  # And never listens, like one left by a dead server.
    with serving(socket_address, double):
        assert values(ops.Client(socket_address).double(1)) == 2

    pathlib.Path(path).write_text("precious")
    for address, message in [
        (socket_address, "exists and is not a socket"),
        (f"unix:{tmp_path}/{'x' * 120}", "longer than the system allows"),
    ]:
        server = ops.Server([address])
        server.bind(double)
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            server.start()
    assert pathlib.Path(path).read_text() == "precious"


@pytest.mark.parametrize("name", ["a b", "a#b?c", "a%20b", "100%", "\u00e4", "a:b"])
def test_paths_with_odd_characters(name, tmp_path):
    """Guards against taking a path for a URI."""
    (tmp_path / name).mkdir()
    address = f"unix:{tmp_path}/{name}/s"
    with serving(address, double):
        assert ops.Client(address, ClientOptions(connect_timeout_s=5)).double(2) == 4


def test_paths_with_a_comma(tmp_path):
    """gRPC's clients would take it for two paths."""
    with pytest.raises(tf.errors.InvalidArgumentError, match="has a comma"):
        with serving(f"unix:{tmp_path}/a,b", double):
            pass
