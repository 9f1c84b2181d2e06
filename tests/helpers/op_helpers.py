"""Helpers for the tests of the native op."""

import contextlib
import threading

import numpy as np
import tensorflow as tf

from seed_rl.grpc import ops
from seed_rl.grpc.channel_options import ServerOptions
from tests.helpers.waiting import PATIENCE_S, wait_until

INT = tf.TensorSpec([], tf.int32)
INTS = tf.TensorSpec([None], tf.int32)


@contextlib.contextmanager
def serving(addresses, *functions, options=None, **bind_options):
    """A running server of `functions`."""
    if isinstance(addresses, str):
        addresses = [addresses]
    server = ops.Server(addresses, options or ServerOptions())
    for function in functions:
        server.bind(function, **bind_options)
    server.start()
    try:
        yield server
    finally:
        server.shutdown()


class Gate:
    """Blocks functions that call `wait` until the test opens it once for each of them."""

    def __init__(self):
        self._tokens = tf.queue.FIFOQueue(1000, [tf.bool], [[]])
        self._entered = tf.Variable(0)

    def wait(self):
        """Call it in a tf.function; returns a tensor that other ops can depend on."""
        with tf.control_dependencies([self._entered.assign_add(1)]):
            return self._tokens.dequeue()

    def wait_until_entered(self, runs):
        """Waits until `runs` runs have reached the gate since it was created."""
        wait_until(lambda: self._entered.numpy() >= runs)

    def open(self, runs=1):
        for _ in range(runs):
            self._tokens.enqueue(True)


class Background:
    """Runs `fn(*args)` on a thread; `result()` returns its result or raises its exception."""

    def __init__(self, fn, *args):
        self._result, self._error = None, None
        self._thread = threading.Thread(target=self._run, args=(fn, args), daemon=True)
        self._thread.start()

    def _run(self, fn, args):
        try:
            self._result = fn(*args)
        except Exception as error:  # noqa: BLE001 - raised in the test.
            self._error = error

    def waits(self):
        """Whether the call is not done after 0.3 s."""
        self._thread.join(0.3)
        return self._thread.is_alive()

    def result(self):
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the call hangs"
        if self._error is not None:
            raise self._error
        return self._result


def wait_for_waiting(server, name, calls):
    """Waits until `calls` calls of a function have arrived but not started."""
    wait_until(lambda: server.stats()["functions"][name]["waiting"] == calls)


@tf.function(input_signature=[INT])
def add_one(x):
    return x + 1


@tf.function(input_signature=[INTS])
def double(x):
    return 2 * x


@tf.function(input_signature=[INTS])
def rows_seen(x):
    """Doubles, and returns the number of rows in the batch for each row."""
    return 2 * x, tf.fill([tf.shape(x)[0]], tf.shape(x)[0])


def static(n):
    @tf.function(input_signature=[tf.TensorSpec([n], tf.int32)])
    def foo(x):
        return x + 1

    return foo


def gated(gate):
    @tf.function(input_signature=[INTS])
    def foo(x):
        with tf.control_dependencies([gate.wait()]):
            return rows_seen(x)

    return foo


def values(tensor):
    return np.asarray(tensor).tolist()
