"""A server whose peer sends headers that gRPC complains of."""

import contextlib

import tensorflow as tf

from benchmarks.hostile import http2
from seed_rl.grpc import ops


@tf.function(input_signature=[tf.TensorSpec([None])])
def same(x):
    return x


server = ops.Server(["127.0.0.1:0"])
server.bind(same)
server.start()
for _ in range(50):
    with contextlib.closing(http2.Connection(server.ports[0])) as peer:
        strange = http2.field("grpc-timeout", "\x1b[31mred\n" * 100)
        peer.open(http2.request(http2.HEALTH) + strange)
        while not peer.closed_streams:
            peer.receive()
server.shutdown()
