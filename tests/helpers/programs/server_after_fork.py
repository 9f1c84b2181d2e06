"""Serves at an address again while a child forked from the first server's process lives."""

import os

import tensorflow as tf

from seed_rl.grpc import ops


@tf.function(input_signature=[tf.TensorSpec([None])])
def same(x):
    return x


def serve(address):
    server = ops.Server([address])
    server.bind(same)
    server.start()
    return server


server = serve("127.0.0.1:0")
port = server.ports[0]
reader, writer = os.pipe()
if not os.fork():
    os.close(writer)
    os.read(reader, 1)
    os._exit(0)
server.shutdown()
serve(f"127.0.0.1:{port}").shutdown()
