"""Calls a bound function through the installed wheel and prints where it was loaded from."""

import json
import os
import pathlib
import sys
import tempfile

import numpy as np
import tensorflow as tf

import seed_rl
from seed_rl import grpc


@tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32)])
def double(x):
    return 2 * x


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/socket"
        server = grpc.Server([address])
        server.bind(double)
        server.start()
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        with grpc.NumpyClient(address) as client:
            numpy_answer = np.asarray(client.double(x))
        client = grpc.Client(address)
        tf_answer = client.double(tf.constant(x)).numpy()
        client.close()
        server.shutdown()
    maps = pathlib.Path("/proc/self/maps").read_text().split("\n")
    libraries = {line.split()[-1] for line in maps if ".so" in line}
    result = {
        "numpy": numpy_answer.tolist(),
        "tensorflow": tf_answer.tolist(),
        "package": os.path.dirname(seed_rl.__file__),
        "libraries": sorted(libraries),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    sys.exit(main())
