"""A server in a process that may open 300 files."""

import resource

import tensorflow as tf

from seed_rl.grpc import ops

resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))


@tf.function(input_signature=[tf.TensorSpec([None])])
def same(x):
    return x


server = ops.Server(["127.0.0.1:0"])
server.bind(same)
server.start()
server.shutdown()
