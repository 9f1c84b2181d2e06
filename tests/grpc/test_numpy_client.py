"""The NumPy client: calls, checks of arguments, and every way in which a server can be bad.

The servers here are grpcio ones; test_ops.py and test_fuzz.py have the client and the op's server
together.
"""

import json
import os
import queue
import subprocess
import sys
import threading
from concurrent import futures

import grpc
import numpy as np
import pytest

from benchmarks import grpcio_server
from seed_rl.common.types import EnvOutput
from seed_rl.grpc import message_stream, structures, wire
from seed_rl.grpc.errors import CallError, ConnectionLost, StatusCode, Timeout, WireError
from seed_rl.grpc.numpy_client import Client
from seed_rl.grpc.options import ClientOptions
from seed_rl.grpc.structures import TensorSpec

SPEC = EnvOutput(
    reward=TensorSpec("float32", (None,)),
    done=TensorSpec("bool", (None,)),
    observation={"frame": TensorSpec("uint8", (None, 3, 2)), "text": TensorSpec("string", (None,))},
    abandoned=TensorSpec("bool", (None,)),
    episode_step=TensorSpec("int32", (None,)),
)
INT = TensorSpec("int32", ())
INTS = TensorSpec("int32", (None,))


@pytest.fixture(params=["direct", "public"])
def stream_kind(request, monkeypatch):
    """Runs a test with either way to use grpcio."""
    used = []
    real = {"direct": message_stream._DirectStream, "public": message_stream._PublicStream}

    def record(kind):
        def make(*args):
            used.append(kind)
            return real[kind](*args)

        return make

    def unavailable(*args):
        raise AttributeError("this grpcio is built differently")

    direct = record("direct") if request.param == "direct" else unavailable
    monkeypatch.setattr(message_stream, "_DirectStream", direct)
    monkeypatch.setattr(message_stream, "_PublicStream", record("public"))
    yield request.param
    assert set(used) <= {request.param}  # Also guards that grpcio still is as the direct one needs.


@pytest.fixture
def address(socket_address):
    return socket_address


def serve(address, fn, arguments=(INTS,), outputs=INTS, **kwargs):
    return grpcio_server.Server(address, fn, "foo", arguments, outputs, **kwargs)


class Scripted:
    """A server of one function `foo(int32) -> int32` that answers each call as `script` says."""

    def __init__(self, address, script, description=None):
        self._script = script
        function = {"name": "foo", "batch": None}
        function["arguments"] = structures.to_json((INT,))
        function["outputs"] = structures.to_json(INT)
        self.description = description or json.dumps({"protocol": 1, "functions": [function]})
        self.release = threading.Event()
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        handlers = {
            "Describe": grpc.unary_unary_rpc_method_handler(
                lambda request, context: self.description.encode()
            ),
            "Stats": grpc.unary_unary_rpc_method_handler(lambda request, context: b"{]"),
            "Call": grpc.stream_stream_rpc_method_handler(self._call),
        }
        service = grpc.method_handlers_generic_handler("seed_rl.Inference", handlers)
        self._server.add_generic_rpc_handlers((service,))
        self._server.add_insecure_port(address)
        self._server.start()

    def _call(self, requests, context):
        for request in requests:
            yield from self._script(self, wire.decode(request))

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.release.set()
        self._server.stop(None).wait()


def reply(frame, value=0):
    return wire.encode_reply(frame.call_id, [np.array(value, np.int32)])


def test_nests_go_and_come_back(address, stream_kind):
    """Structures, named tuples and strings arrive as sent, with and without leading dimension."""
    server = serve(address, lambda *tensors: tensors, structures.specs(SPEC), SPEC)
    one = [1.5, True, np.arange(6, dtype=np.uint8).reshape(3, 2), b"a\0", False, 7]
    with Client(address) as client:
        out = client.foo(*one)
        assert type(out).__name__ == "EnvOutput" and out._fields == EnvOutput._fields
        assert out.reward == np.float32(1.5) and out.done.dtype == bool
        assert out.observation["text"].item() == b"a\0"
        np.testing.assert_array_equal(out.observation["frame"], one[2])
        batch = [[x, x] for x in one[:2]] + [
            np.stack([one[2]] * 2),
            [b"", "é"],
            [False] * 2,
            [1, 2],
        ]
        out = client.foo(*batch)
        assert out.observation["frame"].shape == (2, 3, 2)
        assert out.observation["text"].tolist() == [b"", "é".encode()]
        assert out.episode_step.tolist() == [1, 2]
        out.reward[0] = 3  # Results are the caller's own.
    server.shutdown()


def test_many_threads_share_a_client(address, stream_kind):
    """Every thread gets its own answers, while calls of others are under way."""
    server = serve(address, lambda x: [x * 2])
    wrong = []

    def work(client, start):
        for i in range(start, start + 100):
            if client.foo([i, i + 1]).tolist() != [2 * i, 2 * i + 2]:
                wrong.append(i)

    with Client(address) as client:
        threads = [threading.Thread(target=work, args=(client, 1000 * i)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert client.stats()["functions"]["calls"] == 800
    server.shutdown()


def test_replies_may_come_in_any_order(address, stream_kind):
    """Replies are told apart by call id: the server answers the second call first."""
    held = queue.SimpleQueue()

    def script(server, frame):
        if frame.tensors[0] == 1:
            held.put(frame)
            return []
        return [reply(frame, 20), reply(held.get(), 10)]

    with Scripted(address, script), Client(address) as client:
        results = {}
        first = threading.Thread(target=lambda: results.update(first=client.foo(1)))
        first.start()
        while held.empty():
            pass
        results["second"] = client.foo(2)
        first.join()
        assert results == {"first": 10, "second": 20}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "Expects 2 arguments, but 0 is provided"),
        ((1, 2, 3), "Expects 2 arguments, but 3 is provided"),
        (("a", [1.0, 2.0]), r"Expects arg\[0\] to be int32 but string is provided"),
        ((1.5, [1.0, 2.0]), r"Expects arg\[0\] to be int32 but float32 is provided"),
        ((True, [1.0, 2.0]), r"Expects arg\[0\] to be int32 but bool is provided"),
        ((np.int64(1), [1.0, 2.0]), r"Expects arg\[0\] to be int32 but int64 is provided"),
        ((1, np.zeros(2)), r"Expects arg\[1\] to be float32 but float64 is provided"),
        ((2**31, [1.0, 2.0]), r"arg\[0\]: 2147483648 is out of the range of int32"),
        ((1, [[1.0], [1.0, 2.0]]), r"arg\[1\]: .*inhomogeneous"),
        ((1, 1.0), r"Expects arg\[1\] to have shape with 2 dimension\(s\), but had shape \[\]"),
        ((1, [1.0]), r"Expects arg\[1\] to have shape \[2\], but had shape \[1\]"),
        (([1], [1.0, 2.0]), r"Expects arg\[1\] to have shape with 2 dim.* but had shape \[2\]"),
        (([1], [[1.0]]), r"Expects arg\[1\] to have shape \[\?,2\], but had shape \[1,1\]"),
        (([1], [[1.0, 2.0]] * 2), r"same leading dimension, but arg\[0\] has 1 and arg\[1\] has 2"),
        ((1, [[1.0, 2.0]]), r"Expects arg\[1\] to have shape with 2 dim.* but had shape \[1,2\]"),
        (([[1]], [[1.0, 2.0]]), r"Expects arg\[0\] to have shape with 1 dimension"),
        (([], np.zeros((0, 2), np.float32)), "a leading dimension of at least 1, but it is 0"),
    ],
)
def test_arguments_are_checked(address, args, message):
    """Mistakes are found before anything is sent, and the message tells them."""
    arguments = [INTS, TensorSpec("float32", (None, 2))]
    server = serve(address, lambda a, b: [a], arguments)
    with Client(address) as client:
        with pytest.raises(CallError, match=message) as caught:
            client.foo(*args)
        assert caught.value.code == StatusCode.INVALID_ARGUMENT
        assert client.foo([1, 2], np.zeros((2, 2), np.float32)).tolist() == [1, 2]
        assert server.counters == {"calls": 1, "batches": 1, "errors": 0}
    server.shutdown()


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ([1, 2, 3], r"Expects arg\[0\] to be .* 2, but it is a list of 3"),
        ((1, {"b": 1}), r"Expects arg\[0\]\[1\] to be .* keys \['a'\], but .* \['b'\]"),
        (7, r"Expects arg\[0\] to be a tuple of 2, but it is a int"),
    ],
)
def test_structures_of_arguments_are_checked(address, argument, message):
    """A nest of another form is refused with the place where it differs."""
    structure = (INT, {"a": INT})
    function = {"name": "foo", "batch": None, "arguments": structures.to_json((structure,))}
    function["outputs"] = structures.to_json(INT)
    description = json.dumps({"protocol": 1, "functions": [function]})
    with Scripted(address, lambda server, frame: [reply(frame, 5)], description) as server:
        del server
        with Client(address) as client:
            with pytest.raises(CallError, match=message):
                client.foo(argument)
            assert client.foo([1, {"a": 2}]) == 5


def test_errors_of_the_function_reach_the_caller(address, stream_kind):
    """An error frame becomes CallError with its code and text, and the connection lives."""

    def script(server, frame):
        value = int(frame.tensors[0])
        return [
            wire.encode_error(frame.call_id, value, "newer actor") if value else reply(frame, 9)
        ]

    with Scripted(address, script), Client(address) as client:
        with pytest.raises(CallError, match="FAILED_PRECONDITION: newer actor") as caught:
            client.foo(9)
        assert (caught.value.code, caught.value.message) == (9, "newer actor")
        with pytest.raises(CallError, match="code 77"):
            client.foo(77)
        assert client.foo(0) == 9


def test_a_closing_server_is_a_lost_connection(address):
    """UNAVAILABLE tells actors to reconnect, not to give up."""

    def script(server, frame):
        return [wire.encode_error(frame.call_id, StatusCode.UNAVAILABLE, "server closed")]

    with Scripted(address, script), Client(address) as client:
        with pytest.raises(ConnectionLost, match="server closed"):
            client.foo(1)


def test_timeout_leaves_the_client_usable(address, stream_kind):
    """The late reply to a call that timed out is not taken for that of the next."""
    held = []

    def script(server, frame):
        if frame.tensors[0] == 1:
            held.append(frame)
            return []
        return [reply(held[0], 10), reply(frame, 20)]

    options = ClientOptions(call_timeout_s=0.2)
    with Scripted(address, script), Client(address, options) as client:
        with pytest.raises(Timeout, match="no answer within 0.2 s"):
            client.foo(1)
        assert client.foo(2) == 20


def test_calls_end_when_the_server_goes_away(address, stream_kind):
    """A waiting call and all later ones raise ConnectionLost."""
    started = threading.Event()

    def script(server, frame):
        started.set()
        server.release.wait()
        return []

    with Scripted(address, script) as server:
        client = Client(address)
        errors = []

        def work():
            try:
                client.foo(1)
            except ConnectionLost as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        started.wait()
        server._server.stop(None)
        thread.join()
        assert len(errors) == 1
    with pytest.raises(ConnectionLost, match=address):
        client.foo(1)
    with pytest.raises(ConnectionLost):
        client.stats()
    client.close()


def test_close_ends_waiting_calls(address, stream_kind):
    """close() in one thread frees the others."""
    started = threading.Event()

    def script(server, frame):
        started.set()
        server.release.wait()
        return []

    with Scripted(address, script):
        client = Client(address)
        errors = queue.SimpleQueue()

        def work():
            try:
                client.foo(1)
            except ConnectionLost as error:
                errors.put(error)

        thread = threading.Thread(target=work)
        thread.start()
        started.wait()
        client.close()
        thread.join()
        assert "client closed" in str(errors.get())
        with pytest.raises(ConnectionLost, match="client closed"):
            client.foo(1)
        client.close()  # Twice is fine.


COME_AND_GO = """
import os, sys, time
from seed_rl.grpc import message_stream, numpy_client

if sys.argv[2] == "public":
    message_stream._DirectStream = None


def no_more(count, than):
    return all(a <= b for a, b in zip(count, than))


counts = []
for i in range(8):
    with numpy_client.Client(sys.argv[1]) as client:
        assert client.foo(i) == i
    deadline = time.monotonic() + 30
    while True:  # Threads of a closed client end soon, not at once.
        count = [len(os.listdir(f"/proc/self/{kind}")) for kind in ("task", "fd")]
        if i == 0 or no_more(count, counts[0]) or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    counts.append(count)
    time.sleep(0.2 if i == 0 else 0)
print(counts)
assert no_more(counts[-1], counts[0])
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads through /proc")
@pytest.mark.parametrize("kind", ["direct", "public"])
def test_clients_come_and_go(address, kind, repository):
    """Closed clients leave neither threads nor file descriptors behind."""
    server = serve(address, lambda x: [x])
    command = [sys.executable, "-c", COME_AND_GO, address, kind]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    server.shutdown()


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (lambda frame: b"short", ConnectionLost, "5 bytes, which is no frame"),
        (
            lambda frame: wire.encode_error(wire.UNREADABLE_CALL_ID, 3, "?"),
            ConnectionLost,
            "could not read a call",
        ),
        (lambda frame: reply(frame)[:-1], CallError, "malformed reply"),
        (lambda frame: wire.encode_call(frame.call_id, 0, []), CallError, "it is a call"),
        (lambda frame: wire.encode_reply(frame.call_id, []), CallError, "0 tensors, not 1"),
    ],
)
def test_malformed_replies(address, stream_kind, answer, error, message):
    """A broken server cannot hang or crash the client."""
    with Scripted(address, lambda server, frame: [answer(frame)]), Client(address) as client:
        with pytest.raises(error, match=message):
            client.foo(1)


@pytest.mark.parametrize(
    ("description", "error", "message"),
    [
        ("{]", WireError, "not JSON"),
        ("[1]", WireError, "not a JSON object"),
        ('{"protocol": 2, "functions": []}', CallError, "speaks protocol 2, this client 1"),
        ('{"protocol": 1, "functions": [{"name": "foo"}]}', WireError, "incomplete"),
        ('{"protocol": 1}', WireError, "does not list its functions"),
    ],
)
def test_malformed_descriptions(address, description, error, message):
    """Another kind or version of server is refused when connecting."""
    with Scripted(address, None, description), pytest.raises(error, match=message):
        Client(address)


def test_waits_for_the_server(address):
    """An actor may start before the learner."""
    made = []
    thread = threading.Thread(target=lambda: made.append(Client(address)))
    thread.start()
    server = serve(address, lambda x: [x])
    thread.join()
    with made[0] as client:
        assert client.foo(3) == 3
    server.shutdown()


@pytest.mark.parametrize("address_", ["unix:/nowhere/socket", "localhost:1"])
def test_nobody_there(address_):
    """The message names the address and the time waited."""
    with pytest.raises(ConnectionLost, match=f"no server answered at {address_} within 0.3 s"):
        Client(address_, ClientOptions(connect_timeout_s=0.3))


def test_token(address):
    """A server with a token refuses others, at once and with a hint."""
    server = serve(address, lambda x: [x], token="secret")
    for token in (None, "wrong"):
        with pytest.raises(CallError, match="give this client the server's token") as caught:
            Client(address, ClientOptions(token=token))
        assert caught.value.code == StatusCode.UNAUTHENTICATED
    with Client(address, ClientOptions(token="secret")) as client:
        assert client.foo(4) == 4
        assert client.stats()["functions"]["calls"] == 1
    server.shutdown()


def test_oversized_calls(address):
    """A call above the limit fails alone, before it is sent."""
    server = serve(address, lambda x: [x])
    with Client(address, ClientOptions(max_message_bytes=10_000)) as client:
        with pytest.raises(CallError, match="max_message_bytes") as caught:
            client.foo(np.zeros(3000, np.int32))
        assert caught.value.code == StatusCode.RESOURCE_EXHAUSTED
        assert client.foo(np.zeros(2000, np.int32)).shape == (2000,)
    server.shutdown()


def test_names_that_the_client_has_itself(address):
    """Functions called like the client's own methods, and what a mistyped name says."""
    function = {"batch": None, "arguments": {"tuple": []}, "outputs": structures.to_json(INT)}
    functions = [{"name": "close", **function}, {"name": "lambda", **function}]
    description = json.dumps({"protocol": 1, "functions": functions})
    with Scripted(address, lambda server, frame: [reply(frame, frame.code)], description):
        with Client(address) as client:
            assert client.functions["close"]() == 0
            assert client.functions["lambda"]() == 1
            with pytest.raises(AttributeError, match="no function 'foo'; its functions: close, la"):
                client.foo(1)
            with pytest.raises(WireError, match="not JSON"):
                client.stats()


def test_tcp():
    """Addresses with host and port work, too."""
    server = serve("localhost:0", lambda x: [x + 1])
    with Client(f"localhost:{server.port}") as client:
        assert client.foo([1, 2]).tolist() == [2, 3]
        assert client.describe()["functions"][0]["name"] == "foo"
    server.shutdown()
