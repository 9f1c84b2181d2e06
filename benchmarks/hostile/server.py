"""Starts the servers that are attacked, with the proxy in front of them.

A process that has imported TensorFlow, and forks.

Run by `benchmarks.hostile` as `python -m benchmarks.hostile.server`; takes commands.
"""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import tempfile
from typing import Any

import tensorflow as tf

from benchmarks import processes, secured
from seed_rl.grpc import ops
from seed_rl.grpc.channel_options import ServerOptions

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
def picky(x: tf.Tensor) -> tf.Tensor:
    """Fails if a number of the batch is negative."""
    with tf.control_dependencies([tf.debugging.assert_non_negative(x)]):
        return x + 1


def _serve(path: str, token: str | None, ready: int, parent: int) -> None:
    """Runs a server at a Unix socket; closes `ready`, and ends when `parent` is closed."""
    server = ops.Server([f"unix:{path}"], ServerOptions(token=token))
    for function in (double, wide):
        server.bind(function)
    server.bind(picky, isolate_errors=True)
    server.start()
    os.close(ready)
    os.read(parent, 1)


class Servers:
    """Forks servers; one runs at a time, with its proxy."""

    def __init__(self) -> None:
        self._pid, self._alive = 0, -1
        self._proxy: subprocess.Popen[bytes] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="seed_rl_hostile_")
        self._secrets = secured.make_secrets(pathlib.Path(self._folder.name) / "secrets")

    def __call__(self, token: str | None = None) -> dict[str, Any]:
        """Ends what runs, and starts a server with this token and its proxy."""
        self._end()
        ready, child_ready = os.pipe()
        child_alive, self._alive = os.pipe()
        path = f"{self._folder.name}/learner"
        self._pid = os.fork()
        if not self._pid:
            try:
                os.close(ready)
                os.close(self._alive)
                _serve(path, token, child_ready, child_alive)
            finally:
                os._exit(1)
        os.close(child_ready)
        os.close(child_alive)
        os.read(ready, 1)
        os.close(ready)
        self._proxy, port = secured.start_proxy(pathlib.Path(path), self._secrets)
        pids = [self._pid, self._proxy.pid]
        return {"pids": pids, "port": port, "secrets": str(self._secrets.folder)}

    def _end(self) -> None:
        if self._proxy is not None:
            self._proxy.kill()
            self._proxy.wait()
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            os.close(self._alive)


if __name__ == "__main__":
    processes.serve_commands(Servers())
