"""A server, encrypted or not, for `benchmarks.encryption`.

Run as `python -m benchmarks.encrypted_server [CERTIFICATE KEY]`.
"""

from __future__ import annotations

import sys
from typing import Any

from benchmarks import processes

FRAMES = {"84x84x4": (84, 84, 4), "84x84": (84, 84)}
"""Shapes of the calls' arguments; there is a function for each, in this order."""


def serve(*files: str) -> None:
    """Runs a server, encrypted if files are given: its certificate and key."""
    from seed_rl.grpc import ops
    from seed_rl.grpc.channel_options import ServerOptions

    certificate, key = files or (None, None)
    options = ServerOptions(tls_certificate=certificate, tls_key=key)
    server = ops.Server(["localhost:0"], options)
    for shape in FRAMES.values():
        server.bind(_function(shape))
    server.start()
    processes.serve_commands(server.stats, server.ports[0])


def _function(shape: tuple[int, ...]) -> Any:
    import tensorflow as tf

    def first(x: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.reshape(x, [tf.shape(x)[0], -1])[:, 0], tf.int32)

    first.__name__ = f"frame_{len(shape)}"
    return tf.function(first, input_signature=[tf.TensorSpec([None, *shape], tf.uint8)])


if __name__ == "__main__":
    serve(*sys.argv[1:])
