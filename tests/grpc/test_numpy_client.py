"""The NumPy client: calls, checks of arguments, and faulty servers.

The servers here are grpcio ones; test_codecs.py and test_ops.py have the client and the op's server
together.
"""

import json
import queue
import threading

import numpy as np
import pytest

from seed_rl.grpc import structures, wire
from seed_rl.grpc.errors import CallError, ConnectionLost, StatusCode, WireError
from seed_rl.grpc.numpy_client import Client
from seed_rl.grpc.structures import TensorSpec
from tests.helpers.scripted_server import INT, INTS, Scripted, reply, serve
from tests.helpers.waiting import wait_until


def test_many_threads_share_a_client(socket_address):
    """Every thread gets its own answers, while calls of others are under way."""
    server = serve(socket_address, lambda x: [x * 2])
    wrong = []

    def work(client, start):
        for i in range(start, start + 100):
            if client.foo(np.int32([i, i + 1])).tolist() != [2 * i, 2 * i + 2]:
                wrong.append(i)

    with Client(socket_address) as client:
        threads = [threading.Thread(target=work, args=(client, 1000 * i)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert client.stats()["functions"]["calls"] == 800
    server.shutdown()


def test_replies_may_come_in_any_order(socket_address):
    """Replies are matched by call id: the server answers the second call first."""
    held = queue.SimpleQueue()

    def script(server, frame):
        if frame.tensors[0] == 1:
            held.put(frame)
            return []
        return [reply(frame, 20), reply(held.get(), 10)]

    with Scripted(socket_address, script), Client(socket_address) as client:
        results = {}
        first = threading.Thread(target=lambda: results.update(first=client.foo(1)))
        first.start()
        wait_until(lambda: not held.empty())
        results["second"] = client.foo(2)
        first.join()
        assert results == {"first": 10, "second": 20}


PAIR = np.float32([1, 2])


def test_calls_without_waiting(socket_address):
    """Guards actors that step other environments meanwhile: a call is sent when it is started, and
    results may be taken in another order.
    """
    seen = []

    def script(server, frame):
        seen.append(int(frame.tensors[0]))
        return [reply(frame, 10 * seen[-1])]

    with Scripted(socket_address, script), Client(socket_address) as client:
        calls = [client.functions["foo"].start(i) for i in range(3)]
        wait_until(lambda: seen == [0, 1, 2])
        assert [call() for call in reversed(calls)] == [20, 10, 0]
        with pytest.raises(CallError, match="INVALID_ARGUMENT"):
            client.functions["foo"].start(1.5)
        client.close()
        with pytest.raises(ConnectionLost):
            client.functions["foo"].start(1)()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((1, [1.0, 2.0]), r"Expects 2 arguments, but 3 is provided \(a list is a nest"),
        ((1.5, PAIR), r"Expects arg\[0\] to be int32 but float32 is provided"),
        ((True, PAIR), r"Expects arg\[0\] to be int32 but bool is provided"),
        ((2**31, PAIR), r"arg\[0\]: 2147483648 is out of the range of int32"),
    ],
)
def test_arguments_are_checked(socket_address, args, message):
    """Mistakes are found before anything is sent, and the message names them. (Shapes are the
    server's to check: test_contract_calls.py.)
    """
    arguments = [INTS, TensorSpec("float32", (None, 2))]
    server = serve(socket_address, lambda a, b: [a], arguments)
    with Client(socket_address) as client:
        with pytest.raises(CallError, match=message) as caught:
            client.foo(*args)
        assert caught.value.code == StatusCode.INVALID_ARGUMENT
        assert client.foo(np.int32([1, 2]), np.zeros((2, 2), np.float32)).tolist() == [1, 2]
        assert server.counters == {"calls": 1, "batches": 1, "errors": 0}
    server.shutdown()


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ((1, 2, 3), r"Expects arg\[0\] to be .* 2, but it is a tuple of 3"),
        ((1, {"b": 1}), r"Expects arg\[0\]\[1\] to be .* keys \['a'\], but .* \['b'\]"),
        (7, r"Expects arg\[0\] to be a tuple of 2, but it is a int"),
    ],
)
def test_structures_of_arguments_are_checked(socket_address, argument, message):
    """A nest of another form is refused with the path at which it differs."""
    structure = (INT, {"a": INT})
    function = {"name": "foo", "batch": None, "arguments": structures.to_json((structure,))}
    function["outputs"] = structures.to_json(INT)
    description = json.dumps({"protocol": 1, "functions": [function]})
    with Scripted(socket_address, lambda server, frame: [reply(frame, 5)], description) as server:
        del server
        with Client(socket_address) as client:
            with pytest.raises(CallError, match=message):
                client.foo(argument)
            assert client.foo([1, {"a": 2}]) == 5


def test_errors_of_the_function_reach_the_caller(socket_address):
    """An error frame becomes CallError with its code and text, and the connection lives."""

    def script(server, frame):
        value = int(frame.tensors[0])
        return [
            wire.encode_error(frame.call_id, value, "newer actor") if value else reply(frame, 9)
        ]

    with Scripted(socket_address, script), Client(socket_address) as client:
        with pytest.raises(CallError, match="FAILED_PRECONDITION: newer actor") as caught:
            client.foo(9)
        assert (caught.value.code, caught.value.message) == (9, "newer actor")
        with pytest.raises(CallError, match="code 77"):
            client.foo(77)
        assert client.foo(0) == 9


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda frame: reply(frame)[:-1], "malformed reply"),
        (lambda frame: wire.encode_call(frame.call_id, 0, []), "it is a call"),
        (lambda frame: wire.encode_reply(frame.call_id, []), "0 tensors, not 1"),
    ],
)
def test_malformed_replies(socket_address, answer, message):
    """A broken server cannot hang or crash the client."""
    with (
        Scripted(socket_address, lambda server, frame: [answer(frame)]),
        Client(socket_address) as client,
    ):
        with pytest.raises(CallError, match=message):
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
def test_malformed_descriptions(socket_address, description, error, message):
    """Another kind or version of server is refused when connecting."""
    with Scripted(socket_address, None, description), pytest.raises(error, match=message):
        Client(socket_address)


def test_names_that_the_client_has_itself(socket_address):
    """Functions named like the client's own methods, and the message for a misspelled name."""
    function = {"batch": None, "arguments": {"tuple": []}, "outputs": structures.to_json(INT)}
    functions = [{"name": "close", **function}, {"name": "lambda", **function}]
    description = json.dumps({"protocol": 1, "functions": functions})
    with Scripted(socket_address, lambda server, frame: [reply(frame, frame.code)], description):
        with Client(socket_address) as client:
            assert client.functions["close"]() == 0
            assert client.functions["lambda"]() == 1
            with pytest.raises(AttributeError, match="no function 'foo'; its functions: close, la"):
                client.foo(1)
            with pytest.raises(WireError, match="not JSON"):
                client.stats()
