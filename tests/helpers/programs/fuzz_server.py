"""The server that test_fuzz.py attacks: `python fuzz_server.py ADDRESS...`.

Prints its ports when it listens, and exits at the end of its standard input.
"""

import json
import sys

import tensorflow as tf

from seed_rl.grpc import ops
from seed_rl.grpc.channel_options import ServerOptions

MAX_MESSAGE_BYTES = 1 << 20
MAX_BATCH_SIZE = 64
LIMIT = 1000


@tf.function(
    input_signature=[
        tf.TensorSpec([None, 3], tf.int32),
        {"flag": tf.TensorSpec([None], tf.bool), "text": tf.TensorSpec([None, 2], tf.string)},
    ]
)
def echo(numbers, others):
    """Returns its arguments, batched."""
    return tf.identity(numbers), tf.nest.map_structure(tf.identity, others)


@tf.function(input_signature=[tf.TensorSpec(None, tf.int64), tf.TensorSpec([], tf.string)])
def plain(numbers, text):
    """Returns its arguments, not batched, of any rank."""
    return tf.identity(numbers), tf.identity(text)


@tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
def picky(numbers):
    """Adds one, and fails if one number of the batch is too large."""
    with tf.control_dependencies([tf.debugging.assert_less(numbers, LIMIT)]):
        return numbers + 1


def main():
    options = ServerOptions(max_message_bytes=MAX_MESSAGE_BYTES, max_batch_size=MAX_BATCH_SIZE)
    server = ops.Server(sys.argv[1:], options)
    server.bind(echo)
    server.bind(plain)
    server.bind(picky, isolate_errors=True)
    server.start()
    print(json.dumps(server.ports), flush=True)
    sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    main()
