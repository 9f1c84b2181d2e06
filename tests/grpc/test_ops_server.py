"""The op's server and client as a service: life and death, strangers, limits, secrets."""

import contextlib
import gc
import json
import os
import pathlib
import queue
import signal
import socket
import subprocess
import sys

import grpc
import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.errors import UserError
from seed_rl.grpc import NumpyClient, errors, ops, wire
from seed_rl.grpc.options import ClientOptions, ServerOptions
from tests.grpc.op_helpers import (
    INT,
    INTS,
    Background,
    Gate,
    serving,
    values,
    wait_for_waiting,
)
from tests.waiting import PATIENCE_S, wait_until


@tf.function(input_signature=[INTS])
def double(x):
    return 2 * x


def gated(gate):
    @tf.function(input_signature=[INTS])
    def foo(x):
        with tf.control_dependencies([gate.wait()]):
            return x + 1

    return foo


# --- Ends.


def test_shutdown_fails_running_and_waiting_calls(socket_address):
    """Guards that a learner that ends takes no actor with it, whatever its functions wait for."""
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
        with pytest.raises(tf.errors.OpError):
            server.start()


def test_a_function_that_was_quick_and_then_blocks_stops_nobody(socket_address):
    """Guards running quick functions on network threads: waiting ops must leave them free."""
    gate = Gate()

    @tf.function(input_signature=[INTS])
    def foo(x):
        waits = tf.reduce_any(x < 0)
        with tf.control_dependencies([tf.cond(waits, gate.wait, lambda: True)]):
            return x + 1

    with serving(socket_address, foo, double) as server:
        client, other = ops.Client(socket_address), ops.Client(socket_address)
        for round_ in range(2):
            for i in range(300):
                assert values(client.foo(i)) == i + 1
            blocked = Background(client.foo, -5)
            gate.wait_until_entered(round_ + 1)
            assert values(other.double(1)) == 2
            waiting = Background(other.foo, 7)
            wait_for_waiting(server, "foo", 1)
            assert values(client.double(1)) == 2
            gate.open()
            assert values(blocked.result()) == -4
            assert values(waiting.result()) == 8
        # Once more, now until the end.
        for i in range(300):
            assert values(client.foo(i)) == i + 1
        blocked = Background(client.foo, -5)
        gate.wait_until_entered(3)
        server.shutdown()
        with pytest.raises(tf.errors.UnavailableError, match="server closed"):
            blocked.result()


def test_shutdown_fails_calls_that_wait_for_a_static_batch(socket_address):
    """Guards the callers of a batch that will never be full."""

    @tf.function(input_signature=[tf.TensorSpec([5], tf.int32)])
    def foo(x):
        return x

    with serving(socket_address, foo) as server:
        calls = [Background(ops.Client(socket_address).foo, [1, 2]) for _ in range(2)]
        wait_for_waiting(server, "foo", 2)
    for call in calls:
        with pytest.raises(tf.errors.UnavailableError, match="server closed"):
            call.result()


def test_a_server_is_followed_by_another_on_its_addresses(socket_address, free_port):
    """Guards restarting in one process, on Unix sockets and ports."""
    addresses = [socket_address, f"localhost:{free_port}"]
    for _ in range(3):
        with serving(addresses, double) as server:
            assert server.ports == [0, free_port]
            for address in addresses:
                assert values(ops.Client(address).double([1, 2])) == [2, 4]
    assert not os.path.exists(socket_address.removeprefix("unix:"))


def test_a_dropped_server_ends_by_itself(socket_address):
    """Guards programs that just forget their server."""
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


VICTIM = """
import sys
from seed_rl.grpc import NumpyClient
NumpyClient(sys.argv[1]).foo([1, 2])
"""


def test_a_client_killed_in_its_call_harms_nobody(socket_address, repository):
    """Guards against actors that die: their rows run, the reply is dropped, others go on."""
    gate = Gate()
    with serving(socket_address, gated(gate)) as server:
        victim = subprocess.Popen([sys.executable, "-c", VICTIM, socket_address], cwd=repository)
        gate.wait_until_entered(1)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        wait_until(lambda: server.stats()["connections"] == 0)
        gate.open(2)
        assert values(ops.Client(socket_address).foo([5])) == [6]


MURDERED = """
import sys
import tensorflow as tf
from seed_rl.grpc import Server

gate = tf.queue.FIFOQueue(1, [tf.int32])

@tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
def foo(x):
    tf.print("running", output_stream=sys.stdout)
    return gate.dequeue()

server = Server([sys.argv[1]])
server.bind(foo)
server.start()
gate.size()
sys.stdin.read()
"""


@pytest.mark.slow
def test_a_server_killed_in_a_call_fails_it(socket_address, repository):
    """Guards clients against learners that die without a word, and the socket they leave."""
    server = subprocess.Popen(
        [sys.executable, "-c", MURDERED, socket_address],
        cwd=repository,
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
    """Guards against waiting for ever for a learner that is not there, and says what to check."""
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
        assert values(client.double(1)) == 2


def test_addresses_that_are_taken(socket_address, free_port, tmp_path):
    """Guards that no server takes another's address, and that the message names it."""
    path = socket_address.removeprefix("unix:")
    addresses = [socket_address, f"localhost:{free_port}"]
    with serving(addresses, double):
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
        (socket_address, "exists and is no socket"),
        (f"unix:{tmp_path}/{'x' * 120}", "longer than the system allows"),
    ]:
        server = ops.Server([address])
        server.bind(double)
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            server.start()
    assert pathlib.Path(path).read_text() == "precious"


# --- Limits.


def frame(payload, function=0, call_id=1):
    return wire.encode_call(call_id, function, [payload])


@contextlib.contextmanager
def raw_stream(address, **kwargs):
    """Sends bytes on the Call method; yields `send(bytes)` and an iterator of answers."""
    outgoing = queue.Queue()
    with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        method = channel.stream_stream("/seed_rl.Inference/Call")
        yield outgoing.put, method(iter(outgoing.get, None), wait_for_ready=True, **kwargs)
        outgoing.put(None)


def test_malformed_frames_are_answered_and_the_stream_goes_on(socket_address):
    """Guards the learner against strangers, and their connection against their mistakes."""
    with serving(socket_address, double) as server, raw_stream(socket_address) as (send, answers):
        good = bytes(frame(np.int32([1, 2])))
        for bad, call_id, text in [
            (b"", wire.UNREADABLE_CALL_ID, "shorter than a header"),
            (b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n", wire.UNREADABLE_CALL_ID, "SDR1"),
            (good[:-1], 1, "cut short"),
            (good + b"x", 1, "after the last tensor"),
            (bytes(frame(np.int32([1]), function=7)), 1, "There is no function 7"),
        ]:
            send(bad)
            answer = wire.decode(next(answers))
            assert (answer.kind, answer.call_id) == (wire.KIND_ERROR, call_id)
            assert answer.code == errors.StatusCode.INVALID_ARGUMENT
            assert text in answer.message
        send(good)
        assert values(wire.decode(next(answers)).tensors[0]) == [2, 4]
        assert server.stats()["messages_rejected"] == 5


def test_oversized_messages_end_their_connection_only(socket_address):
    """Guards the memory of the learner; others do not notice."""
    options = ServerOptions(max_message_bytes=10_000)
    with serving(socket_address, double, options=options):
        bystander = ops.Client(socket_address)
        with raw_stream(socket_address) as (send, answers):
            send(bytes(20_000))
            with pytest.raises(grpc.RpcError) as caught:
                next(answers)
            assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(tf.errors.ResourceExhaustedError):
            ops.Client(socket_address).double(np.zeros([5000], np.int32))
        assert values(bystander.double(1)) == 2
        # The client's own limit refuses a call without losing the connection.
        careful = ops.Client(socket_address, ClientOptions(max_message_bytes=10_000))
        with pytest.raises(tf.errors.ResourceExhaustedError, match="more than max_message_bytes"):
            careful.double(np.zeros([5000], np.int32))
        assert values(careful.double(1)) == 2


def test_connections_are_limited(socket_address):
    """Guards max_connections: newcomers are told why, and get in when others have left."""
    with serving(socket_address, double, options=ServerOptions(max_connections=2)) as server:
        clients = [ops.Client(socket_address) for _ in range(2)]
        assert [values(client.double(1)) for client in clients] == [2, 2]
        with pytest.raises(tf.errors.ResourceExhaustedError, match="raise max_connections"):
            ops.Client(socket_address).double(1)
        clients[0].close()
        wait_until(lambda: server.stats()["connections"] == 1)
        assert values(ops.Client(socket_address).double(1)) == 2


@pytest.mark.parametrize(
    "options", [ServerOptions(max_calls_per_peer=2), ServerOptions(max_bytes_per_peer=5000)]
)
def test_a_peer_with_many_calls_in_flight_is_held_back(socket_address, options):
    """Guards memory per peer: the server stops reading, and loses nothing."""
    gate = Gate()

    @tf.function(input_signature=[tf.TensorSpec([3000], tf.uint8), INT])
    def large(data, x):
        with tf.control_dependencies([gate.wait()]):
            return x

    with serving(socket_address, large, options=options) as server:
        client = ops.Client(socket_address)
        calls = [Background(client.large, np.zeros([3000], np.uint8), i) for i in range(8)]
        gate.wait_until_entered(1)
        wait_for_waiting(server, "large", 1)
        other = ops.Client(socket_address)
        late = Background(other.large, np.zeros([3000], np.uint8), 100)
        wait_for_waiting(server, "large", 2)  # Two of the first client's, one of the other's.
        gate.open(9)
        assert sorted(values(call.result()) for call in calls) == list(range(8))
        assert values(late.result()) == 100


# --- Secrets.


def test_a_token_is_asked_for(socket_address):
    """Guards every method but the health check, which probes call without metadata."""
    with serving(socket_address, double, options=ServerOptions(token="sesame")):
        right = ClientOptions(token="sesame")
        assert values(ops.Client(socket_address, right).double(1)) == 2
        with NumpyClient(socket_address, right) as client:
            assert values(client.double(1)) == 2
            assert client.stats()["functions"]["double"]["calls"] == 2
        for wrong in (None, "sesam", "sesame!", ""):
            with pytest.raises(tf.errors.UnauthenticatedError, match="asks for a token"):
                ops.Client(socket_address, ClientOptions(token=wrong))
        with grpc.insecure_channel(socket_address) as channel:
            for method in ("/seed_rl.Inference/Stats", "/seed_rl.Inference/Describe"):
                with pytest.raises(grpc.RpcError) as caught:
                    channel.unary_unary(method)(b"", timeout=PATIENCE_S)
                assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            assert check(b"", timeout=PATIENCE_S) == b"\x08\x01"
        with raw_stream(socket_address) as (_, answers):
            with pytest.raises(grpc.RpcError) as caught:
                next(answers)
            assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED


def make_certificate(folder):
    """A certificate for localhost that signs itself, and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return str(certificate), str(key)


def test_encryption(socket_address, tmp_path):
    """Guards TLS on ports, with both clients; Unix sockets of the same server go without."""
    certificate, key = make_certificate(tmp_path)
    (tmp_path / "other").mkdir()
    stranger, _ = make_certificate(tmp_path / "other")
    options = ServerOptions(tls_certificate=certificate, tls_key=key, token="sesame")
    with serving(["localhost:0", socket_address], double, options=options) as server:
        address = f"localhost:{server.ports[0]}"
        right = ClientOptions(tls_ca=certificate, token="sesame")
        assert values(ops.Client(address, right).double(1)) == 2
        with NumpyClient(address, right) as client:
            assert values(client.double(1)) == 2
        assert values(ops.Client(socket_address, right).double(1)) == 2
        for tls_ca in (None, stranger):
            with pytest.raises(tf.errors.UnavailableError, match="No server at"):
                ops.Client(address, ClientOptions(tls_ca=tls_ca, connect_timeout_s=0.5))
    with pytest.raises(UserError, match="Cannot read /nowhere"):
        ops.Server([socket_address], ServerOptions(tls_certificate=certificate, tls_key="/nowhere"))
    with pytest.raises(UserError, match="Cannot read /nowhere"):
        ops.Client(socket_address, ClientOptions(tls_ca="/nowhere"))


def test_options_that_make_no_sense():
    """Guards against limits that would let nobody in, and against half a TLS configuration."""
    for make, message in [
        (lambda: ServerOptions(tls_certificate="a"), "must be given together"),
        (lambda: ServerOptions(max_batch_size=0), "max_batch_size is 0; it must be above 0"),
        (lambda: ServerOptions(max_message_bytes=2**31), "max_message_bytes is .* below"),
        (lambda: ClientOptions(connect_timeout_s=-1), "connect_timeout_s is -1"),
        (lambda: ClientOptions(call_timeout_s=0), "call_timeout_s is 0"),
    ]:
        with pytest.raises(UserError, match=message):
            make()


# --- Statistics and other methods.


def test_statistics_and_status(socket_address):
    """Guards the numbers that operators and the panel see."""
    with serving(socket_address, double) as server:
        assert server.stats()["functions"]["double"]["calls"] == 0
        server.set_status({"frames": 5, 'strange "name"': "ü\n"})
        with NumpyClient(socket_address) as client:
            client.double([1, 2, 3])
            client.double(1)
            with pytest.raises(errors.CallError):
                client.functions["double"].batch = None  # Lets a bad call pass the client's check.
                client.double(np.zeros([2, 2], np.int32))
            stats = client.stats()
        function = stats["functions"]["double"]
        assert {key: function[key] for key in ("calls", "rows", "batches", "mean_batch")} == {
            "calls": 2,
            "rows": 4,
            "batches": 2,
            "mean_batch": 2,
        }
        assert function["waiting"] == 0
        assert function["run_us"] > 0 and function["queue_wait_us"] > 0
        assert stats["connections"] == 1 and stats["uptime_s"] > 0
        assert stats["status"] == {"frames": 5, 'strange "name"': "ü\n"}
        assert server.stats()["status"] == stats["status"]


def test_the_description_and_unknown_methods(socket_address):
    """Guards what clients of other languages rely on."""
    with serving(socket_address, double), grpc.insecure_channel(socket_address) as channel:
        describe = channel.unary_unary("/seed_rl.Inference/Describe")
        description = json.loads(describe(b"{}", timeout=PATIENCE_S))
        assert description["protocol"] == 1
        assert description["functions"] == [
            {
                "name": "double",
                "batch": 0,
                "arguments": {
                    "tuple": [{"tensor": {"dtype": "int32", "shape": [None], "name": "x"}}]
                },
                "outputs": {"tensor": {"dtype": "int32", "shape": [None], "name": ""}},
            }
        ]
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/seed_rl.Inference/Nothing")(b"", timeout=PATIENCE_S)
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def native_threads():
    names = []
    for path in pathlib.Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # It has just ended.
            names.append(path.read_text())
    return [name for name in names if name.startswith("seed_")]


@pytest.mark.slow
def test_clients_come_and_go_by_the_hundred(socket_address):
    """Guards streams' ends against calls' ends, in every order, and against leaks of either."""
    with serving(socket_address, double) as server:
        gc.collect()
        threads_before = len(native_threads())

        def come_and_go(seed):
            random = np.random.default_rng(seed)
            for _ in range(25):
                client = ops.Client(socket_address)
                calls = [Background(client.double, i) for i in range(random.integers(1, 4))]
                if random.random() < 0.5:
                    assert [values(call.result()) for call in calls] == [
                        2 * i for i in range(len(calls))
                    ]
                client.close()
                for call in calls:
                    with contextlib.suppress(tf.errors.CancelledError):
                        call.result()

        for thread in [Background(come_and_go, seed) for seed in range(6)]:
            thread.result()
        wait_until(lambda: server.stats()["connections"] == 0)
        assert values(ops.Client(socket_address).double(1)) == 2
        gc.collect()
        wait_until(lambda: len(native_threads()) <= threads_before)
