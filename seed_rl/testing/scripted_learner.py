"""A fake learner whose replies a test provides (plain grpcio, no TensorFlow).

Actors can be tested against it within milliseconds: it speaks the wire format, calls a Python
function for each inference call, and can disconnect and come back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from typing import Any

import grpc
import numpy as np

from seed_rl.common import nest
from seed_rl.common.acting.environment_agreement import ENVIRONMENT
from seed_rl.common.acting.spaces import describe, specs
from seed_rl.common.types import ACTION_SPACE, EnvOutput
from seed_rl.grpc import structures, wire
from seed_rl.grpc.errors import CallError
from seed_rl.grpc.structures import TensorSpec

Inference = Callable[[np.ndarray, np.ndarray, EnvOutput, np.ndarray], Any]
"""`fn(env_ids, run_ids, env_outputs, raw_rewards)` returns actions or raises `CallError`."""


def serve_methods(
    address: str,
    describe: Callable[[bytes, grpc.ServicerContext], bytes],
    stats: Callable[[bytes, grpc.ServicerContext], bytes],
    call: Callable[[Iterator[bytes], grpc.ServicerContext], Iterator[bytes]],
    threads: int = 16,
) -> tuple[grpc.Server, int]:
    """Serves the three methods of the protocol with grpcio; returns the server and its port."""
    server = grpc.server(futures.ThreadPoolExecutor(threads))
    methods = {
        "Describe": grpc.unary_unary_rpc_method_handler(describe),
        "Stats": grpc.unary_unary_rpc_method_handler(stats),
        "Call": grpc.stream_stream_rpc_method_handler(call),
    }
    service = grpc.method_handlers_generic_handler("seed_rl.Inference", methods)
    server.add_generic_rpc_handlers((service,))
    port = server.add_insecure_port(address)
    server.start()
    return server, port


class ScriptedLearner:
    """Serves `inference` for environments with the given spaces; a context manager.

    Attributes:
      address: the address it listens on.
    """

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        inference: Inference,
        address: str = "localhost:0",
        token: str | None = None,
        environment: Mapping[str, Any] | None = None,
    ):
        """Starts serving.

        Args:
          observation_space: observation space of one environment.
          action_space: action space of one environment.
          inference: called once per inference call, on several threads.
          address: "unix:/path" or "host:port"; port 0 picks a free port.
          token: secret that actors must present.
          environment: options of the learner's environment, by name.
        """
        observation = nest.map_structure(_batched, specs(observation_space))
        env_output = EnvOutput(
            TensorSpec("float32", (None,)),
            TensorSpec("bool", (None,)),
            observation,
            TensorSpec("bool", (None,)),
            TensorSpec("int32", (None,)),
        )
        self._arguments = (
            TensorSpec("int32", (None,)),
            TensorSpec("int64", (None,)),
            env_output,
            TensorSpec("float32", (None,)),
        )
        outputs = nest.map_structure(_batched, specs(action_space, "action"))
        function = {
            "name": "inference",
            "batch": 0,
            "arguments": structures.to_json(self._arguments),
            "outputs": structures.to_json(outputs),
        }
        status = {ACTION_SPACE: describe(action_space), ENVIRONMENT: dict(environment or {})}
        self._stats = json.dumps({"status": status})
        self._description = json.dumps(
            {"protocol": wire.PROTOCOL_VERSION, "functions": [function], "status": status}
        )
        self._inference = inference
        self._token = token
        self._server, port = serve_methods(address, self.describe, self.stats, self.call)
        self.address = address if address.startswith("unix:") else f"localhost:{port}"

    def close(self) -> None:
        """Stops serving and breaks all connections."""
        self._server.stop(0).wait()

    def __enter__(self) -> ScriptedLearner:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def describe(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Handles Describe."""
        del request
        shown = dict(context.invocation_metadata()).get("authorization")
        if self._token is not None and shown != f"Bearer {self._token}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong or missing token")
        return self._description.encode()

    def stats(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Handles Stats."""
        del request, context
        return self._stats.encode()

    def call(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Handles Call: one actor's stream."""
        del context
        for request in requests:
            frame = wire.decode(request)
            # gRPC owns the message's memory, but the test may keep the arrays.
            tensors = [tensor.copy() for tensor in frame.tensors]
            try:
                actions = self._inference(*structures.pack(self._arguments, tensors))
            except CallError as error:
                yield wire.encode_error(frame.call_id, error.code, error.message)
            else:
                leaves = [np.asarray(leaf) for leaf in nest.flatten(actions)]
                yield wire.encode_reply(frame.call_id, leaves)


def _batched(spec: Any) -> TensorSpec:
    return TensorSpec(spec.dtype.name, (None, *spec.shape), spec.name)
