"""Untrusted clients of the op's server: malformed frames, limits, secrets, and what it reveals."""

import contextlib
import gc
import json
import locale
import math
import os
import pathlib
import queue
import threading

import grpc
import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.errors import UserError
from seed_rl.grpc import NumpyClient, addresses, errors, ops, wire
from seed_rl.grpc.channel_options import ClientOptions, ServerOptions
from tests.helpers import run
from tests.helpers.op_helpers import (
    INT,
    INTS,
    Background,
    Gate,
    double,
    serving,
    values,
    wait_for_waiting,
)
from tests.helpers.secrets import make_secrets
from tests.helpers.waiting import PATIENCE_S, wait_until


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
    """Guards the learner against invalid calls, and the connection of those who make them."""
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


def test_strings_are_read_only_where_they_are_wanted(socket_address):
    """Guards the network thread: walking the lengths of millions of strings takes a while."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def shout(text):
        return tf.strings.join([text, "!"])

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.string)])
    def count(text):
        return tf.size(text)

    good = bytes(frame(np.array(["a", "b"]), function=1))
    assert good.count(b"\x01\0\0\0\x01\0\0\0ab") == 1
    torn = good.replace(b"\x01\0\0\0\x01\0\0\0ab", b"\x01\0\0\0\x02\0\0\0ab")
    long = good.replace(b"\x01\0\0\0\x01\0\0\0ab", b"\x01\0\0\0\0\0\0\0ab")
    functions = (double, shout, count)
    with serving(socket_address, *functions), raw_stream(socket_address) as (send, answers):
        for bad, function, text in [
            (torn, 0, "arg[0] to be int32 but string is provided"),
            (torn, 1, "a string is cut short"),
            (long, 1, "bytes after the last string"),
        ]:
            send(bad[:16] + bytes([function]) + bad[17:])
            answer = wire.decode(next(answers))
            assert (answer.kind, answer.call_id) == (wire.KIND_ERROR, 1)
            assert answer.code == errors.StatusCode.INVALID_ARGUMENT
            assert text in answer.message
        send(good)
        assert wire.decode(next(answers)).tensors[0].tolist() == [b"a!", b"b!"]
        send(bytes(frame(np.full([1, 2**18 + 1], ""), function=2)))
        assert "at most 262144 strings in a call" in wire.decode(next(answers)).message


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="looks into /proc")
def test_python_code_never_runs_on_the_network_thread(socket_address):
    """Guards all clients: Python's lock may be held for long, though it was free so far."""
    threads = []

    def note(x):
        tid = threading.get_native_id()
        threads.append(pathlib.Path(f"/proc/self/task/{tid}/comm").read_text().strip())
        return x

    @tf.function(input_signature=[INTS])
    def seldom(x):
        return tf.cond(
            tf.reduce_any(x > 0), lambda: tf.py_function(note, [x], tf.int32), lambda: x + 0
        )

    with serving(socket_address, seldom):
        client = ops.Client(socket_address)
        for _ in range(500):
            client.seldom(0)
        client.seldom(1)
    assert len(threads) == 1 and threads[0] != "seed_net"


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


def test_oversized_calls_of_strings(socket_address):
    """Guards the connection of a TensorFlow client from the one call that is too large."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def lengths(x):
        return tf.strings.length(x)

    with serving(socket_address, lengths):
        client = ops.Client(socket_address, ClientOptions(max_message_bytes=10_000))
        with pytest.raises(tf.errors.ResourceExhaustedError, match="more than max_message_bytes"):
            client.lengths(np.array(["a" * 20_000]))
        with pytest.raises(tf.errors.ResourceExhaustedError, match="more than max_message_bytes"):
            client.lengths(np.full(3000, ""))  # Their lengths take room, too.
        assert values(client.lengths(np.array(["abc"]))) == [3]


def test_connections_are_limited(socket_address):
    """Guards max_connections: new clients get the reason, and can connect once others have left."""
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
        for wrong in (None, "sesam", "sesame!"):
            with pytest.raises(tf.errors.UnauthenticatedError, match="requires a token"):
                ops.Client(socket_address, ClientOptions(token=wrong))
            with pytest.raises(
                errors.CallError, match="give this client the server's tok"
            ) as refused:
                NumpyClient(socket_address, ClientOptions(token=wrong))
            assert refused.value.code == errors.StatusCode.UNAUTHENTICATED
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


def test_both_sides_warn_of_a_token_that_can_be_read(caplog):
    """Guards operators who assume that a token alone protects a port."""
    addresses.warn_of_bare_token.cache_clear()
    options = ServerOptions(token="sesame")
    with serving("0.0.0.0:0", double, options=options) as server:
        assert "The token for 0.0.0.0:0 is sent without encryption" in caplog.text
        port = server.ports[0]
        # A name of this machine that does not look like one.
        client = ops.Client(f"ipv4:127.0.0.1:{port}", ClientOptions(token="sesame"))
        assert values(client.double(1)) == 2
    assert f"The token for ipv4:127.0.0.1:{port} is sent without encryption" in caplog.text
    assert "sesame" not in caplog.text


def test_a_server_for_other_machines_needs_a_token_or_tls_or_consent():
    """Guards programs that only change the address; a refused server listens nowhere."""
    server = ops.Server(["localhost:0", "0.0.0.0:0"])
    server.bind(double)
    with pytest.raises(UserError, match=r"Refusing to serve 0\.0\.0\.0:0.*a token.*insecure=True"):
        server.start()
    assert server.ports == []
    ServerOptions(tls_certificate="c", tls_key="k").check_exposed("0.0.0.0:0")
    with serving("0.0.0.0:0", double, options=ServerOptions(insecure=True)) as server:
        client = ops.Client(f"localhost:{server.ports[0]}")
        assert values(client.double(1)) == 2


@pytest.mark.slow
def test_encryption(socket_address, tmp_path):
    """Guards TLS on ports, with both clients; Unix sockets of the same server go without."""
    secrets = make_secrets(tmp_path / "secrets", "localhost")
    stranger = make_secrets(tmp_path / "other", "localhost").authority
    certificate, key = (str(secrets.folder / name) for name in ("cert.pem", "key.pem"))
    options = ServerOptions(tls_certificate=certificate, tls_key=key, token="sesame")
    with serving(["localhost:0", socket_address], double, options=options) as server:
        address = f"localhost:{server.ports[0]}"
        right = ClientOptions(tls_ca=secrets.authority, token="sesame")
        assert values(ops.Client(address, right).double(1)) == 2
        with NumpyClient(address, right) as client:
            assert values(client.double(1)) == 2
        assert values(ops.Client(socket_address, right).double(1)) == 2
        for tls_ca in (None, stranger):
            with pytest.raises(tf.errors.UnavailableError, match="No server at"):
                ops.Client(address, ClientOptions(tls_ca=tls_ca, connect_timeout_s=0.5))
            with pytest.raises(errors.ConnectionLost, match="no server answered"):
                NumpyClient(address, ClientOptions(tls_ca=tls_ca, connect_timeout_s=0.5))
    with pytest.raises(UserError, match="Cannot read /nowhere"):
        ops.Server([socket_address], ServerOptions(tls_certificate=certificate, tls_key="/nowhere"))
    with pytest.raises(UserError, match="Cannot read /nowhere"):
        ops.Client(socket_address, ClientOptions(tls_ca="/nowhere"))
    with pytest.raises(errors.ConnectionLost, match="cannot read"):
        NumpyClient("localhost:1", ClientOptions(tls_ca="/nowhere"))


def test_options_that_make_no_sense():
    """Guards against limits that would reject everyone, half a TLS configuration, and an endless
    timeout of batches that would be none.
    """
    for make, message in [
        (lambda: ServerOptions(tls_certificate="a"), "Set both tls_certificate and tls_key"),
        (lambda: ClientOptions(tls_ca="a", tls_cert="b"), "Set both tls_cert and tls_key"),
        (lambda: ClientOptions(tls_cert="a", tls_key="b"), "tls_cert needs tls_ca"),
        (lambda: ServerOptions(max_batch_size=0), "max_batch_size must be above 0"),
        (lambda: ServerOptions(keepalive_s=2e6), "keepalive_s must be above 0 and below 1073741,"),
        (lambda: ServerOptions(batch_timeout_ms=math.inf), "batch_timeout_ms must be .* not inf"),
        (lambda: ServerOptions(batch_timeout_ms=math.nan), "batch_timeout_ms must be .* not nan"),
        (lambda: ServerOptions(batch_timeout_ms=-1), "batch_timeout_ms must be at least 0 and"),
        (lambda: ServerOptions(threads=-1), "threads must be at least 0, not -1"),
        (lambda: ServerOptions(max_message_bytes=2**31), "max_message_bytes must be .* below"),
        (lambda: ClientOptions(connect_timeout_s=-1), "connect_timeout_s must be .* not -1"),
        (lambda: ClientOptions(call_timeout_s=0), "call_timeout_s must be .* not 0"),
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
            client.double(np.int32([1, 2, 3]))
            client.double(1)
            with pytest.raises(errors.CallError):
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


def test_statistics_in_a_locale_with_decimal_commas(monkeypatch, tmp_path, socket_address):
    """Guards their JSON: libraries may set the program's locale."""
    source = tmp_path / "source"
    numbers = ('decimal_point ","', 'thousands_sep ""', "grouping -1")
    source.write_text("\n".join(["LC_NUMERIC", *numbers, "END LC_NUMERIC", ""]))
    monkeypatch.setenv("LOCPATH", str(tmp_path))
    before = locale.setlocale(locale.LC_NUMERIC)
    try:
        run("localedef", "--no-archive", "-c", "-i", source, tmp_path / "commas")
        locale.setlocale(locale.LC_NUMERIC, "commas")
    except (FileNotFoundError, locale.Error):
        pytest.skip("localedef is missing, or makes no such locale")
    try:
        with serving(socket_address, double) as server:
            assert isinstance(server.stats()["uptime_s"], float)
    finally:
        locale.setlocale(locale.LC_NUMERIC, before)


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
        # Its name may be long, and the peer in no hurry to read.
        assert caught.value.details() == "Unknown method"


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
