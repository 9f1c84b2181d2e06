"""The server that is attacked: `python -m benchmarks.hostile.server SOCKET`."""

from __future__ import annotations

import sys

import tensorflow as tf

from benchmarks import processes
from benchmarks.hostile.stage import TOKEN
from seed_rl.grpc import ops
from seed_rl.grpc.channel_options import ServerOptions


@tf.function(input_signature=[tf.TensorSpec([None], tf.int32, "x")])
def double(x: tf.Tensor) -> tf.Tensor:
    """What honest clients call."""
    return 2 * x


if __name__ == "__main__":
    server = ops.Server([f"unix:{sys.argv[1]}"], ServerOptions(token=TOKEN))
    server.bind(double)
    server.start()
    processes.serve_commands(server.stats)
