"""Serves, and forks children that leave in different ways; prints what the server then answers.

forking_server.py ADDRESS
"""

import os
import sys

import tensorflow as tf

from seed_rl.grpc import ops
from seed_rl.grpc.numpy_client import Client


@tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
def double(x):
    return 2 * x


def main():
    server = ops.Server([sys.argv[1]])
    server.bind(double)
    server.start()
    caller, client = ops.Client(sys.argv[1]), Client(sys.argv[1])
    for leave in (sys.exit, server.shutdown, caller.close, client.close):
        child = os.fork()
        if child == 0:
            leave()
            sys.exit(0)  # Runs what was registered with atexit.
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        print(int(caller.double(1)), int(client.double(2)), flush=True)
    print(int(ops.Client(sys.argv[1]).double(3)), flush=True)


if __name__ == "__main__":
    main()
