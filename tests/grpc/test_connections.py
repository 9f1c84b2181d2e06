"""Connections of the op's server: descriptors, peers that do not read, and what is left."""

import contextlib
import os
import pathlib
import random
import resource
import socket
import subprocess
import sys
import types

import grpc
import numpy as np
import pytest
import tensorflow as tf

from benchmarks.hostile import http2
from seed_rl.grpc import NumpyClient, ops, wire
from seed_rl.grpc.channel_options import ServerOptions
from tests.helpers import PROGRAMS
from tests.helpers.op_helpers import INTS, Gate, double, serving, values
from tests.helpers.waiting import PATIENCE_S, wait_until

HOST = "127.0.0.1"
HEALTHY = b"\x08\x01"
MIB = 1 << 20


def connect(server):
    return socket.create_connection((HOST, server.ports[0]), timeout=PATIENCE_S)


@contextlib.contextmanager
def channel_to(address):
    """A channel with a connection of its own."""
    with grpc.insecure_channel(str(address), [("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield channel


def is_closed_soon(connection):
    """Whether the server ends the connection."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def has_ipv6():
    """Whether an interface has an address: `socket.has_ipv6` is only about Python's build."""
    addresses = pathlib.Path("/proc/net/if_inet6")
    return addresses.exists() and addresses.read_text() != ""


@pytest.mark.parametrize("host", [HOST, "[::1]"])
def test_connections_that_come_and_go_leave_nothing(host):
    """Guards descriptors, for silent peers, HTTP/2 and noise."""
    if host == "[::1]" and not has_ipv6():
        pytest.skip("no IPv6")
    with serving(f"{host}:0", double) as server:
        with NumpyClient(f"{host}:{server.ports[0]}") as client:
            assert values(client.double(np.int32([1]))) == [2]
        before, noise = descriptors(), random.Random(0)
        for i in range(200):
            with socket.create_connection((host.strip("[]"), server.ports[0])) as connection:
                if i % 4:
                    said = http2.settings({}) if i % 2 else noise.randbytes(i)
                    connection.sendall(b"" if i % 4 == 2 else http2.PREFACE)
                    connection.sendall(said)
        # gRPC may have kept the client's last connection for a while.
        wait_until(lambda: descriptors() <= before)


def test_connections_leave_descriptors_to_the_rest_and_without_any_the_server_recovers():
    """Guards checkpoints from storms of clients, and a listener that must accept again."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with serving(f"{HOST}:0", double) as server, contextlib.ExitStack() as files:
        alone = descriptors()
        resource.setrlimit(resource.RLIMIT_NOFILE, (alone + 120, limits[1]))
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        command = [sys.executable, str(PROGRAMS / "crowd.py"), str(server.ports[0])]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as others:
            assert others.stdout.readline() == b"here\n"
            # More than the crowd would leave, less than the quarter that is reserved.
            for _ in range(30):
                files.callback(os.close, os.dup(0))
            others.communicate()
        # Else a descriptor that the server frees late would be the newcomer's.
        wait_until(lambda: descriptors() <= alone + 30)
        newcomer = socket.socket()
        with pytest.raises(OSError):
            while True:
                files.callback(os.close, os.dup(0))
        with newcomer:
            newcomer.settimeout(PATIENCE_S)
            newcomer.connect((HOST, server.ports[0]))
            assert is_closed_soon(newcomer)
        files.close()
        with NumpyClient(f"{HOST}:{server.ports[0]}") as client:
            assert values(client.double(np.int32([1]))) == [2]


@pytest.mark.slow
def test_too_few_descriptors_are_announced(forks):
    """Guards operators, who would otherwise see clients refused without a reason."""
    done = forks.run(PROGRAMS / "server_program.py", "with_few_files", code=0)
    assert "max_connections=4096 needs" in done.stderr
    assert "this process may only have 300" in done.stderr


def test_what_peers_send_is_harmless_in_the_log(forks):
    """Guards terminals and disks: header values are escaped and cut, and lines few."""
    done = forks.run(PROGRAMS / "server_program.py", "with_strange_headers", code=0)
    lines = [line for line in done.stderr.split("\n") if line.startswith("gRPC: ")]
    assert 1 <= len(lines) <= 10 and "further messages" in lines[-1]
    assert "\x1b" not in done.stderr and r"\x1b[31mred\x0a" in lines[0]
    assert max(len(line) for line in lines) < 400


def test_proxies_are_not_used(monkeypatch):
    """Guards clients on machines whose programs reach the internet by a proxy."""
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("grpc_proxy", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"http://{HOST}:9")
    with serving(f"{HOST}:0", double) as server:
        address = f"{HOST}:{server.ports[0]}"
        assert values(ops.Client(address).double(1)) == 2
        with NumpyClient(address) as client:
            assert values(client.double(np.int32([1]))) == [2]


def test_a_peer_that_never_reads_is_closed():
    """Guards memory: gRPC's pings would wait forever behind data that the peer does not read."""
    options = ServerOptions(keepalive_s=1)
    with serving(f"{HOST}:0", double, options=options) as server, socket.socket() as peer:
        for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            peer.setsockopt(socket.SOL_SOCKET, buffer, 4096)
        peer.connect((HOST, server.ports[0]))
        stream = http2.frame(http2.HEADERS, http2.END_HEADERS, 1, http2.request(http2.CALL))
        peer.sendall(http2.PREFACE + http2.settings({}) + stream)
        wait_until(lambda: server.stats()["connections"] == 1)
        peer.settimeout(0.5)
        pings = http2.frame(http2.PING, payload=bytes(8)) * 1000
        # On a busy machine, it may be closed before it is full.
        with pytest.raises((TimeoutError, ConnectionError)):
            for _ in range(1000):  # As much as may be unfinished.
                peer.sendall(pings)
        wait_until(lambda: server.stats()["connections"] == 0)


def test_children_do_not_keep_the_port(forks):
    """Guards a learner that starts again while a forked process of the last one is still there."""
    forks.run(PROGRAMS / "server_program.py", "serve_again", code=0)


def test_requests_of_unary_methods_are_not_read(socket_address):
    """Guards memory, and that clients get their answer although nobody reads their request."""
    with serving([socket_address, f"{HOST}:0"], double) as server:
        for address in (socket_address, f"{HOST}:{server.ports[1]}"):
            for _ in range(10):
                with channel_to(address) as channel:
                    check = channel.unary_unary("/grpc.health.v1.Health/Check")
                    for size in (0, 10, 4000, 50_000):
                        assert check(bytes(size), timeout=PATIENCE_S) == HEALTHY
                    for _ in range(100):
                        assert check(b"", timeout=PATIENCE_S) == HEALTHY


def test_compressed_messages_are_refused(socket_address, capfd):
    """Guards memory, as a megabyte can become a gigabyte, and the log, as gRPC reports each."""
    with serving(socket_address, double), channel_to(socket_address) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        for _ in range(30):
            with pytest.raises(grpc.RpcError) as caught:
                check(bytes(MIB), timeout=PATIENCE_S, compression=grpc.Compression.Gzip)
            assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
        assert capfd.readouterr().err.count("gRPC: Compression") < 20
        assert check(b"", timeout=PATIENCE_S) == HEALTHY


@pytest.mark.parametrize(
    "options", [ServerOptions(max_bytes_per_peer=100_000), ServerOptions(max_bytes=100_000)]
)
def test_unread_answers_end_their_stream(options):
    """Guards memory from clients that call and do not read: of each, and of all together."""
    gate = Gate()

    @tf.function(input_signature=[INTS])
    def large(x):
        with tf.control_dependencies([gate.wait()]):
            return tf.zeros([tf.size(x), 20_000])

    with serving(f"{HOST}:0", large, options=options, max_in_flight=1) as server:
        preface = http2.PREFACE + http2.settings({http2.INITIAL_WINDOW_SIZE: 0})
        peer = http2.Connection(server.ports[0], preface)
        try:
            stream = peer.open(http2.request(http2.CALL))
            for i in range(5):
                message = http2.message(bytes(wire.encode_call(i + 1, 0, [np.int32([i])])))
                peer.send(http2.frame(http2.DATA, 0, stream, message))
                gate.wait_until_entered(1)  # The first runs alone.
            wait_until(lambda: server.stats()["functions"]["large"]["waiting"] == 4)
            gate.open(5)
            wait_until(lambda: server.stats()["connections"] == 0)
        finally:
            peer.close()


def test_each_stream_may_have_one_call(socket_address):
    """Guards clients that read their answers, however small their share of max_bytes is."""
    with serving(socket_address, double, options=ServerOptions(max_bytes=1)):
        clients = [ops.Client(socket_address) for _ in range(2)]
        assert [values(client.double(1)) for client in clients] == [2, 2]


def test_max_bytes_follows_the_free_memory(monkeypatch, socket_address):
    """Guards containers, whose limit may be far below the machine's memory."""
    given, native = [], ops._ops()

    def make(**options):
        given.append(options["max_bytes"])
        return native.seed_grpc_server(**options)

    monkeypatch.setattr(ops, "_ops", lambda: types.SimpleNamespace(seed_grpc_server=make))
    for free in (80 << 30, 1 << 30):
        monkeypatch.setattr(ops, "available_bytes", lambda free=free: free)
        ops.Server([socket_address])
    ops.Server([socket_address], ServerOptions(max_bytes=5))
    assert given == [10 << 30, 1 << 30, 5]


def test_socket_files(tmp_path):
    """Guards the file of a server that has taken the place of this one."""
    path = tmp_path / "socket"
    with serving(f"unix:{path}", double):
        assert values(ops.Client(f"unix:{path}").double(1)) == 2
    assert not path.exists()
    with serving(f"unix:{path}", double), socket.socket(socket.AF_UNIX) as other:
        path.unlink()
        other.bind(str(path))
        other.listen()
    assert path.exists()


def test_abstract_sockets():
    """Guards addresses without a file, and that they are exclusive, too."""
    address = f"unix-abstract:seed-test-{os.getpid()}"
    with serving(address, double):
        assert values(ops.Client(address).double(1)) == 2
        with pytest.raises(tf.errors.UnavailableError, match="Another server is listening"):
            with serving(address, double):
                pass
