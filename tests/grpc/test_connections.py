"""Connections of the op's server: how many, what a stranger may send on one, and what is left."""

import contextlib
import os
import resource
import socket
import subprocess
import sys
import time

import grpc
import numpy as np
import pytest
import tensorflow as tf

from benchmarks.hostile import http2
from seed_rl.grpc import NumpyClient, ops, wire
from seed_rl.grpc.options import ClientOptions, ServerOptions
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


def is_closed(connection):
    """Whether the server has ended the connection; reads what it sent before."""
    connection.settimeout(0)
    try:
        while connection.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def descriptors():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("host", [HOST, "[::1]"])
def test_connections_that_come_and_go_leave_nothing(host):
    """Guards the count of connections and the descriptors, for silent peers and HTTP/2's."""
    if host == "[::1]" and not socket.has_ipv6:
        pytest.skip("no IPv6")
    with serving(f"{host}:0", double) as server:
        with NumpyClient(f"{host}:{server.ports[0]}") as client:
            assert values(client.double(np.int32([1]))) == [2]
        # gRPC may keep the client's last connection for a while.
        wait_until(lambda: server.stats()["open_connections"] <= 1)
        before = descriptors()
        for i in range(2000):
            with socket.create_connection((host.strip("[]"), server.ports[0])) as connection:
                if i % 2:
                    connection.sendall(http2.PREFACE + http2.settings({}))
        wait_until(lambda: server.stats()["open_connections"] <= 1)
        wait_until(lambda: descriptors() <= before)


def test_a_server_without_descriptors_recovers():
    """Guards the listener: gRPC's would never accept again."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with serving(f"{HOST}:0", double) as server:
        command = [sys.executable, str(PROGRAMS / "crowd.py"), str(server.ports[0])]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as others:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors() + 20, limits[1]))
            try:
                assert others.stdout.readline() == b"here\n"
                wait_until(lambda: server.stats()["open_connections"] > 0)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            others.communicate()
        with NumpyClient(f"{HOST}:{server.ports[0]}") as client:
            assert values(client.double(np.int32([1]))) == [2]
        wait_until(lambda: server.stats()["open_connections"] <= 1)


def test_too_few_descriptors_are_announced(forks):
    """Guards operators, who would else see clients being refused for no reason."""
    done = forks.run(PROGRAMS / "server_with_few_files.py")
    assert done.returncode == 0, done.stderr
    assert "max_connections=4096 needs" in done.stderr
    assert "this process may only have 300" in done.stderr


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


def test_strangers_give_way():
    """Guards newcomers: the oldest connections without a stream go; those with one stay."""
    options = ServerOptions(max_connections=2, token="sesame")
    with serving(f"{HOST}:0", double, options=options) as server, contextlib.ExitStack() as stack:
        address, mine = f"{HOST}:{server.ports[0]}", ClientOptions(token="sesame")
        first = stack.enter_context(NumpyClient(address, mine))
        assert values(first.double(np.int32([1]))) == [2]  # The server knows of its stream.
        strangers = [stack.enter_context(connect(server)) for _ in range(200)]
        wait_until(lambda: is_closed(strangers[0]))
        assert values(first.double(np.int32([1]))) == [2]
        second = stack.enter_context(NumpyClient(address, mine))
        assert values(second.double(np.int32([2]))) == [4]
        assert not is_closed(strangers[-1])


@pytest.mark.parametrize(
    "flood", [http2.frame(http2.PING, payload=bytes(8)), http2.settings({}), bytes(17)]
)
def test_a_stranger_may_send_little(flood):
    """Guards the network threads from whatever HTTP/2 lets a peer send, without a token."""
    options = ServerOptions(token="sesame")
    with serving(f"{HOST}:0", double, options=options) as server:
        stranger = http2.Connection(server.ports[0], timeout_s=PATIENCE_S)
        sent = 0
        with contextlib.closing(stranger), pytest.raises(ConnectionError):
            while sent < 100 * MIB:
                stranger.send(flood * (4096 // len(flood)))
                sent += 4096
                stranger.receive()  # gRPC stops reading from peers that do not.
        mine = ClientOptions(token="sesame")
        with NumpyClient(f"{HOST}:{server.ports[0]}", mine) as client:
            assert values(client.double(np.int32([1]))) == [2]


def test_a_stranger_may_be_a_member_of_whom_the_server_has_not_heard():
    """Guards clients that connect to a busy server, which hears late of what they have sent."""
    unknown = http2.frame(kind=0xFF, payload=bytes(http2.MAX_FRAME_BYTES))  # To be ignored.
    with serving(f"{HOST}:0", double) as server, connect(server) as stranger:
        stranger.sendall(http2.PREFACE + http2.settings({}))
        # HTTP/2's first window, and some more.
        stranger.sendall(unknown * 5)
        stranger.sendall(http2.frame(http2.PING, payload=b"the last"))
        received = b""
        while b"the last" not in received:
            received += (news := stranger.recv(1 << 16))
            assert news
        with pytest.raises(ConnectionError):
            for _ in range(100):
                stranger.sendall(unknown * (MIB // len(unknown)))


def test_windows_allow_no_more_than_a_stranger_may_send():
    """Guards clients whose first call is large, from losing their connection for it."""
    deaf = http2.PREFACE + http2.settings({http2.INITIAL_WINDOW_SIZE: 0})
    with serving(f"{HOST}:0", double) as server:
        peer = http2.Connection(server.ports[0], deaf, timeout_s=PATIENCE_S)
        with contextlib.closing(peer):
            stream = peer.open(http2.request(http2.HEALTH))  # Nobody reads its request.
            sent = peer.send_data(stream, memoryview(bytes(50_000)))
            assert sent == 50_000
            for _ in range(5):  # The window would have grown after one round trip.
                peer.send(http2.frame(http2.PING, payload=bytes(8)))
                time.sleep(0.05)
                peer.receive()
            assert sent + peer.windows[stream] < 1 << 16


def test_strangers_share_what_may_be_kept():
    """Guards memory from many connections of which none sends too much, and members from them."""
    unknown = http2.frame(kind=0xFF, payload=bytes(http2.MAX_FRAME_BYTES))  # To be ignored.
    options = ServerOptions(token="sesame")
    with serving(f"{HOST}:0", double, options=options) as server, contextlib.ExitStack() as stack:
        member = http2.Connection(server.ports[0], timeout_s=PATIENCE_S)
        stack.callback(member.close)
        stream = member.open(http2.request(http2.CALL, "sesame"))
        wait_until(lambda: server.stats()["connections"] == 1)
        # More than any of the others.
        rest = memoryview(http2.message_prefix(4 * MIB - 1) + bytes(3 * MIB))
        while rest:
            member.receive()
            rest = rest[member.send_data(stream, rest) :]
        strangers, closed = [], 0
        for _ in range(600):
            # Health checks whose answers have no room remain.
            deaf = http2.PREFACE + http2.settings({http2.INITIAL_WINDOW_SIZE: 0})
            stranger = http2.Connection(server.ports[0], deaf, timeout_s=PATIENCE_S)
            stack.callback(stranger.close)
            try:
                stranger.open(http2.request(http2.HEALTH))
                stranger.send(unknown * 6)
            except ConnectionError:
                closed += 1
            strangers.append(stranger.socket)
        wait_until(lambda: closed or any(is_closed(stranger) for stranger in strangers))
        assert server.stats()["connections"] == 1


def test_a_peer_that_never_reads_is_closed():
    """Guards memory: pings of gRPC's would wait for ever behind what the peer does not take."""
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
        with pytest.raises(TimeoutError):
            for _ in range(1000):  # As much as may be unfinished.
                peer.sendall(pings)
        wait_until(lambda: server.stats()["open_connections"] == 0)


def test_a_port_has_one_connection():
    """Guards members: gRPC names the peer of an RPC, but not the address at which it came."""

    def connect_from(port, other):
        peer = stack.enter_context(socket.socket())
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        peer.bind(("127.0.0.2", port))
        peer.settimeout(PATIENCE_S)
        peer.connect((HOST, other))
        return peer

    def greet(peer):
        peer.sendall(http2.PREFACE + http2.settings({}))
        assert peer.recv(1)

    with serving([f"{HOST}:0"] * 3, double) as server, contextlib.ExitStack() as stack:
        first = connect_from(0, server.ports[0])
        port = first.getsockname()[1]
        greet(first)
        second = connect_from(port, server.ports[1])
        wait_until(lambda: is_closed(second))
        assert not is_closed(first)
        first.close()
        greet(connect_from(port, server.ports[2]))


def test_children_do_not_keep_the_port(forks):
    """Guards a learner that starts again while a forked process of the last one is still there."""
    done = forks.run(PROGRAMS / "server_after_fork.py")
    assert done.returncode == 0, done.stderr


def test_a_member_may_send_what_its_calls_take():
    """Guards honest clients, who may send much more than strangers, and then wait."""
    with serving(f"{HOST}:0", double) as server:
        with NumpyClient(f"{HOST}:{server.ports[0]}") as client:
            rows = np.zeros([1024], np.int32)
            for _ in range(3000):  # 12 MB in calls.
                client.double(rows)
            assert values(client.double(np.int32([1]))) == [2]


def test_complete_calls_do_not_pay_for_calls_that_never_end():
    """Guards memory: a stream of calls could fill another stream's message without end."""
    options = ServerOptions(max_message_bytes=MIB)
    greedy = http2.settings({http2.INITIAL_WINDOW_SIZE: 2**31 - 1})
    greedy += http2.frame(http2.WINDOW_UPDATE, payload=(2**31 - 65_536).to_bytes(4, "big"))
    call = memoryview(http2.message(b"no frame".ljust(MIB // 2)))
    with serving(f"{HOST}:0", double, options=options) as server:
        # It takes all answers.
        peer = http2.Connection(server.ports[0], http2.PREFACE + greedy, timeout_s=PATIENCE_S)
        paying, endless = (peer.open(http2.request(http2.CALL)) for _ in range(2))
        wait_until(lambda: server.stats()["connections"] == 2)
        paid, held, rest = 0, 0, call
        peer.send_data(endless, memoryview(http2.message_prefix(1 << 30)))
        with contextlib.closing(peer), pytest.raises(ConnectionError):
            while held < 200 * MIB:
                peer.receive()
                size = peer.send_data(paying, rest)
                paid += size
                rest = rest[size:] or call
                held += peer.send_data(endless, memoryview(bytes(min(MIB // 4, paid - held))))
        assert paid > 8 * MIB
        with NumpyClient(f"{HOST}:{server.ports[0]}") as client:
            assert values(client.double(np.int32([1]))) == [2]


def test_a_stream_may_end_while_its_messages_are_under_way():
    """Guards clients from being taken for strangers because of what they sent before they knew."""
    options = ServerOptions(max_message_bytes=MIB)
    with serving(f"{HOST}:0", double, options=options) as server:
        with channel_to(f"{HOST}:{server.ports[0]}") as channel:
            call = channel.stream_stream("/seed_rl.Inference/Call")
            next(call(iter([b"no frame"]), timeout=PATIENCE_S))
            for _ in range(30):
                with pytest.raises(grpc.RpcError) as caught:
                    next(call(iter([bytes(MIB + 1)] * 4), timeout=PATIENCE_S))
                assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


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


def test_a_connection_has_few_streams():
    """Guards max_connections, which one peer could use up."""
    with serving(f"{HOST}:0", double) as server:
        peer = http2.Connection(server.ports[0])
        try:
            for _ in range(20):
                peer.open(http2.request(http2.CALL))
            wait_until(lambda: server.stats()["connections"] == 8)
            with NumpyClient(f"{HOST}:{server.ports[0]}") as client:
                assert values(client.double(np.int32([1]))) == [2]
                assert client.stats()["connections"] == 9
        finally:
            peer.close()
        wait_until(lambda: server.stats()["connections"] == 0)


def test_a_connection_has_few_rpcs_per_second():
    """Guards against floods of RPCs, of which each is cheap."""
    with serving(f"{HOST}:0", double) as server:
        with channel_to(f"{HOST}:{server.ports[0]}") as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            calls = [check.future(b"", timeout=PATIENCE_S) for _ in range(1500)]
            codes = [call.code() for call in calls]
        assert codes[0] == grpc.StatusCode.OK
        assert grpc.StatusCode.RESOURCE_EXHAUSTED in codes


def test_unread_answers_end_their_stream():
    """Guards memory from clients that call and do not read."""
    gate = Gate()

    @tf.function(input_signature=[INTS])
    def large(x):
        with tf.control_dependencies([gate.wait()]):
            return tf.zeros([tf.size(x), 20_000])

    options = ServerOptions(max_bytes_per_peer=100_000)
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
