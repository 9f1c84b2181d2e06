"""The NumPy client's connection: how it starts, what breaks it, and how it ends."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.grpc import ops, wire
from seed_rl.grpc.channel_options import ClientOptions
from seed_rl.grpc.errors import CallError, ConnectionLost, StatusCode, Timeout
from seed_rl.grpc.numpy_client import Client
from tests.helpers import PROGRAMS, run_python
from tests.helpers.scripted_server import Scripted, reply, serve
from tests.helpers.secrets import make_secrets
from tests.helpers.waiting import PATIENCE_S, wait_until


def test_a_closing_server_is_a_lost_connection(socket_address):
    """UNAVAILABLE tells actors to reconnect, not to give up."""

    def script(server, frame):
        return [wire.encode_error(frame.call_id, StatusCode.UNAVAILABLE, "server closed")]

    with Scripted(socket_address, script), Client(socket_address) as client:
        with pytest.raises(ConnectionLost, match="server closed"):
            client.foo(1)


@pytest.mark.parametrize("client", [Client, ops.Client])
@pytest.mark.parametrize(
    "answer", [b"?" * 40, b"?", wire.encode_error(2**64 - 1, StatusCode.INVALID_ARGUMENT, "what?")]
)
def test_an_answer_to_no_call_ends_the_connection(socket_address, client, answer):
    """Guards actors from waiting for ever: their calls have no deadline."""
    with Scripted(socket_address, lambda *_: [answer]):
        connected = client(socket_address)
        with pytest.raises(
            (ConnectionLost, tf.errors.InternalError), match="server (could not read a call|sent)"
        ):
            connected.foo(1)


def test_timeout_leaves_the_client_usable(socket_address):
    """The late reply to a call that timed out is not taken for that of the next."""
    held = []

    def script(server, frame):
        if frame.tensors[0] == 1:
            held.append(frame)
            return []
        return [reply(held[0], 10), reply(frame, 20)]

    options = ClientOptions(call_timeout_s=0.2)
    with Scripted(socket_address, script), Client(socket_address, options) as client:
        with pytest.raises(Timeout, match="no answer within 0.2 s"):
            client.foo(1)

        def answer():
            with contextlib.suppress(Timeout):  # A busy machine.
                return client.foo(2)

        assert wait_until(answer) == 20


def test_an_answer_that_is_fetched_late(socket_address):
    """An answer that came in time counts, although its caller was busy until the time was up."""
    options = ClientOptions(call_timeout_s=0.1)
    server = Scripted(socket_address, lambda server, frame: [reply(frame, 10)])
    with server, Client(socket_address, options) as client:

        def answer():
            fetch = client.functions["foo"].start(1)
            time.sleep(2 * options.call_timeout_s)
            with contextlib.suppress(Timeout):  # A busy machine.
                return fetch()

        assert wait_until(answer) == 10


@pytest.mark.parametrize("who", ["server", "client"])
def test_calls_end_with_their_server_or_client(socket_address, who):
    """A waiting call in another thread, and all later ones, raise ConnectionLost."""
    started = threading.Event()
    errors = queue.SimpleQueue()
    reason = "client closed" if who == "client" else socket_address

    def script(server, frame):
        started.set()
        server.release.wait()
        return []

    with Scripted(socket_address, script) as server:
        client = Client(socket_address)

        def work():
            try:
                client.foo(1)
            except ConnectionLost as error:
                errors.put(error)

        thread = threading.Thread(target=work)
        thread.start()
        started.wait()
        if who == "client":
            client.close()
        else:
            server._server.stop(None)
        thread.join()
        assert reason in str(errors.get_nowait())
    with pytest.raises(ConnectionLost, match=reason):
        client.foo(1)
    if who == "server":
        with pytest.raises(ConnectionLost):
            client.stats()
    client.close()  # Twice is fine.


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads through /proc")
def test_clients_come_and_go(socket_address):
    """Closed clients leave neither threads nor file descriptors behind."""
    server = serve(socket_address, lambda x: [x])
    run_python(PROGRAMS / "client_program.py", "come_and_go", socket_address, code=0)
    server.shutdown()


def test_waits_for_the_server(socket_address):
    """An actor may start before the learner."""
    made = []
    thread = threading.Thread(target=lambda: made.append(Client(socket_address)))
    thread.start()
    server = serve(socket_address, lambda x: [x])
    thread.join()
    with made[0] as client:
        assert client.foo(3) == 3
    server.shutdown()


@pytest.mark.parametrize("address_", ["unix:/nowhere/socket", "localhost:1"])
def test_nobody_there(address_):
    """The message names the address and the time waited."""
    with pytest.raises(ConnectionLost, match=f"no server answered at {address_} within 0.3 s"):
        Client(address_, ClientOptions(connect_timeout_s=0.3))


def test_oversized_calls(socket_address):
    """A call above the limit fails alone, before it is sent."""
    server = serve(socket_address, lambda x: [x])
    with Client(socket_address, ClientOptions(max_message_bytes=10_000)) as client:
        with pytest.raises(CallError, match="max_message_bytes") as caught:
            client.foo(np.zeros(3000, np.int32))
        assert caught.value.code == StatusCode.RESOURCE_EXHAUSTED
        assert client.foo(np.zeros(2000, np.int32)).shape == (2000,)
    server.shutdown()


@contextlib.contextmanager
def waiting_program(action, address):
    """A process of client_program.py whose call is with the server, which never answers it."""
    waiting = threading.Event()

    def script(server, frame):
        if frame.tensors[0] != 1:
            return [reply(frame, int(frame.tensors[0]))]
        waiting.set()
        return []

    command = [sys.executable, PROGRAMS / "client_program.py", action, address]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with Scripted(address, script), subprocess.Popen(command, text=True, **pipes) as program:
        try:
            assert waiting.wait(PATIENCE_S)
            yield program
        finally:
            program.kill()


def test_ctrl_c_interrupts_a_native_call(socket_address):
    """Also guards that the end of a forked child does not touch the parent's stream."""
    with waiting_program("wait", socket_address) as program:
        program.send_signal(signal.SIGINT)
        output, errors = program.communicate(timeout=PATIENCE_S)
    assert (program.returncode, output) == (0, "interrupted\n"), errors


def test_python_exits_during_a_native_call(socket_address):
    """Guards that the stream is not deleted under a thread that waits for it."""
    with waiting_program("leave", socket_address) as program:
        _, errors = program.communicate("leave\n", timeout=PATIENCE_S)
    assert (program.returncode, errors) == (0, "")


def test_a_process_that_used_tls_ends_without_freeing_what_grpc_uses(tmp_path):
    """Guards its exit code. OpenSSL frees its memory at exit, under the hands of gRPC's threads.

    That happened in one of many runs. Here, a function that is registered after a first request,
    as OpenSSL's is if that did not find its host, would abort the process. A thread that reads the
    keyboard holds a lock of C, for which the end must not wait.
    """
    authority = make_secrets(tmp_path / "secrets", "localhost").authority
    program = """
import ctypes, sys, threading
from seed_rl.grpc.call_stream import CallStream
from seed_rl.grpc.channel_options import ClientOptions

def request(address):
    CallStream(address, ClientOptions(tls_ca=sys.argv[1])).request("/Any/Method", 0.1, wait=True)

process = ctypes.CDLL(None)
request("no-such-host.invalid:1")
process.__cxa_atexit(process.abort, None, None)
request("localhost:1")
stdin = ctypes.c_void_p.in_dll(process, "stdin")
threading.Thread(target=process.flockfile, args=(stdin,)).start()
process.printf(b"printed before the end")
sys.exit(4)
"""
    result = run_python("-c", program, authority, code=4)
    assert result.stdout == "printed before the end"
