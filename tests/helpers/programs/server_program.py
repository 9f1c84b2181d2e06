"""Serves `double`, or another function, and does one of the following.

server_program.py ACTION [ADDRESS]
"""

import contextlib
import os
import resource
import sys
import threading

import tensorflow as tf

from benchmarks.hostile import http2
from seed_rl.grpc import ops
from seed_rl.grpc.numpy_client import Client
from tests.helpers.logical_devices import make_cpus
from tests.helpers.op_helpers import double


def serve(address="127.0.0.1:0", function=double):
    server = ops.Server([address])
    server.bind(function)
    server.start()
    return server


def serve_again():
    """At the address of a server while a child forked from its process lives."""
    server = serve()
    port = server.ports[0]
    reader, writer = os.pipe()
    if not os.fork():
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    server.shutdown()
    serve(f"127.0.0.1:{port}").shutdown()


def with_few_files():
    """In a process that may open 300 files."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))
    serve().shutdown()


def with_strange_headers():
    """For a peer that sends headers which gRPC complains of."""
    server = serve()
    for _ in range(50):
        with contextlib.closing(http2.Connection(server.ports[0])) as peer:
            strange = http2.field("grpc-timeout", "\x1b[31mred\n" * 100)
            peer.open(http2.request(http2.HEALTH) + strange)
            while not peer.closed_streams:
                peer.receive()
    server.shutdown()


def bind_while_asked():
    """Binds functions to one server after the other while threads ask for statistics."""
    functions = []
    for i in range(17):  # A list of them that doubles its room grows five times.

        def function(x):
            return x

        function.__name__ = f"function_{i}"
        functions.append(tf.function(function, input_signature=[tf.TensorSpec([], tf.int32)]))
    for _ in range(20):
        server, bound = ops.Server(["127.0.0.1:0"]), threading.Event()

        def ask(server=server, bound=bound):
            while not bound.is_set():
                server.stats()

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for function in functions:
            server.bind(function)
        bound.set()
        for thread in threads:
            thread.join()
        assert list(server.stats()["functions"]) == [f"function_{i}" for i in range(17)]


def fork(address):
    """Children that leave in different ways; prints what the server then answers."""
    server = serve(address)
    caller, client = ops.Client(address), Client(address)
    for leave in (sys.exit, server.shutdown, caller.close, client.close):
        child = os.fork()
        if child == 0:
            leave()
            sys.exit(0)  # Runs what was registered with atexit.
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        print(int(caller.double(1)), int(client.double(2)), flush=True)
    print(int(ops.Client(address).double(3)), flush=True)


def never_return(address):
    """From a function, `foo`."""
    gate = tf.queue.FIFOQueue(1, [tf.int32])

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
    def foo(x):
        tf.print("running", output_stream=sys.stdout)
        return gate.dequeue()

    server = serve(address, foo)
    sys.stdin.read()
    server.shutdown()


def from_devices(address):
    """A function from two devices; prints where it runs, and leaves server and client running."""
    make_cpus(3)

    def make(device):
        with tf.device(device):
            weights = tf.Variable([[2.0]])
            constant = tf.constant(int(device[-1]))

        def foo(x, text):
            with tf.device(device):
                where = tf.raw_ops.Identity(input=constant)
                print(where.device)
                return tf.matmul(x, weights)[:, 0], tf.repeat(where, tf.shape(x)[0]), text + "!"

        specs = [tf.TensorSpec([None, 1]), tf.TensorSpec([None], tf.string)]
        return tf.function(foo, input_signature=specs)

    server, client = serve(address, [make("cpu:1"), make("cpu:2")]), ops.Client(address)
    results = [client.foo(tf.constant([[3.0]]), tf.constant(["a"])) for _ in range(4)]
    assert [float(y[0]) for y, _, _ in results] == [6.0] * 4
    assert [int(where[0]) for _, where, _ in results] == [1, 2, 1, 2]
    assert all(text[0] == b"a!" for _, _, text in results)
    return server, client


if __name__ == "__main__":
    left = globals()[sys.argv[1]](*sys.argv[2:])  # The interpreter must exit anyway.
