"""Serves a function that never returns, at the given address."""

import sys

import tensorflow as tf

from seed_rl.grpc import Server


def main():
    gate = tf.queue.FIFOQueue(1, [tf.int32])

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
    def foo(x):
        tf.print("running", output_stream=sys.stdout)
        return gate.dequeue()

    server = Server([sys.argv[1]])
    server.bind(foo)
    server.start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
