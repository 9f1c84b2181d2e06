"""Serves one function from two devices, and exits without shutting anything down.

serving_devices.py ADDRESS

It prints the device of each run of the function.
"""

import sys

import tensorflow as tf

from seed_rl.grpc import ops
from tests.helpers.logical_devices import make_cpus


def make(device):
    with tf.device(device):
        weights = tf.Variable([[2.0]])
        constant = tf.constant(int(device[-1]))

    def foo(x, text):
        with tf.device(device):
            where = tf.raw_ops.Identity(input=constant)
            print(where.device)
            return tf.matmul(x, weights)[:, 0], tf.repeat(where, tf.shape(x)[0]), text + "!"

    specs = [tf.TensorSpec([None, 1]), tf.TensorSpec([None], tf.string)]
    return tf.function(foo, input_signature=specs)


make_cpus(3)
# Globals: server and client are left running, and the interpreter must exit anyway.
server = ops.Server([sys.argv[1]])
server.bind([make("cpu:1"), make("cpu:2")])
server.start()
client = ops.Client(sys.argv[1])
results = [client.foo(tf.constant([[3.0]]), tf.constant(["a"])) for _ in range(4)]
assert [float(y[0]) for y, _, _ in results] == [6.0] * 4
assert [int(where[0]) for _, where, _ in results] == [1, 2, 1, 2]
assert all(text[0] == b"a!" for _, _, text in results)
