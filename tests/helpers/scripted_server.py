"""grpcio servers for the tests of the NumPy client."""

import json
import threading

import numpy as np

from benchmarks import grpcio_server
from seed_rl.grpc import structures, wire
from seed_rl.grpc.structures import TensorSpec
from seed_rl.testing.scripted_learner import serve_methods

INT = TensorSpec("int32", ())
INTS = TensorSpec("int32", (None,))


def serve(address, fn, arguments=(INTS,)):
    return grpcio_server.Server(address, fn, "foo", arguments, INTS)


class Scripted:
    """A server of one function `foo(int32) -> int32` that answers each call as `script` says."""

    def __init__(self, address, script, description=None):
        self._script = script
        function = {"name": "foo", "batch": None}
        function["arguments"] = structures.to_json((INT,))
        function["outputs"] = structures.to_json(INT)
        self.description = description or json.dumps({"protocol": 1, "functions": [function]})
        self.release = threading.Event()
        self._server, _ = serve_methods(
            address,
            lambda request, context: self.description.encode(),
            lambda request, context: b"{]",
            self._call,
        )

    def _call(self, requests, context):
        for request in requests:
            yield from self._script(self, wire.decode(request))

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.release.set()
        self._server.stop(None).wait()


def reply(frame, value=0):
    return wire.encode_reply(frame.call_id, [np.array(value, np.int32)])
