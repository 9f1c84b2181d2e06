"""Starts the servers that are attacked: a process that has imported TensorFlow, and forks.

Run by `benchmarks.hostile` as `python -m benchmarks.hostile.server`; takes commands.
"""

from __future__ import annotations

import json
import os
import resource
import signal
from typing import Any

import tensorflow as tf

from benchmarks import processes
from seed_rl.grpc import ops
from seed_rl.grpc.options import ServerOptions

WIDE_ROW = 16_384
"""Elements in a row that `wide` returns: 64 KiB."""

_INTS = tf.TensorSpec([None], tf.int32, "x")


@tf.function(input_signature=[_INTS])
def double(x: tf.Tensor) -> tf.Tensor:
    """What honest clients call."""
    return 2 * x


@tf.function(input_signature=[_INTS])
def wide(x: tf.Tensor) -> tf.Tensor:
    """Large rows."""
    return tf.cast(x, tf.float32)[:, None] + tf.zeros([1, WIDE_ROW])


@tf.function(input_signature=[_INTS])
def work(x: tf.Tensor) -> tf.Tensor:
    """Takes as many steps as the largest number says; returns zeros."""
    steps = tf.reduce_max(x)
    i = tf.while_loop(lambda i: i < steps, lambda i: i + 1, [0], parallel_iterations=1)[0]
    return tf.zeros_like(x) * i


@tf.function(input_signature=[_INTS])
def picky(x: tf.Tensor) -> tf.Tensor:
    """Fails if a number of the batch is negative."""
    with tf.control_dependencies([tf.debugging.assert_non_negative(x)]):
        return x + 1


def _serve(token: str | None, max_files: int | None, port: int, parent: int) -> None:
    """Runs a server; writes its port to file `port`, and ends when `parent` is closed."""
    if max_files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max_files, max_files))
    server = ops.Server(["127.0.0.1:0"], ServerOptions(token=token))
    for function in (double, wide, work):
        server.bind(function)
    server.bind(picky, isolate_errors=True)
    server.start()
    os.write(port, json.dumps(server.ports[0]).encode())
    os.close(port)
    os.read(parent, 1)


class Servers:
    """Forks servers; one runs at a time."""

    def __init__(self) -> None:
        self._pid, self._alive = 0, -1

    def __call__(self, token: str | None = None, max_files: int | None = None) -> dict[str, Any]:
        """Ends the server that runs, and starts one with these options."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            os.close(self._alive)
        port, child_port = os.pipe()
        child_alive, self._alive = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            try:
                os.close(port)
                os.close(self._alive)
                _serve(token, max_files, child_port, child_alive)
            finally:
                os._exit(1)
        os.close(child_port)
        os.close(child_alive)
        with os.fdopen(port) as file:
            return {"pid": self._pid, "port": json.loads(file.read())}


if __name__ == "__main__":
    processes.serve_commands(Servers())
