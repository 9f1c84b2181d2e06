"""Processes of the benchmark of calls: servers, and Python clients that generate load.

Run as `python -m benchmarks.call_workers ROLE [ADDRESS ...]`.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks import processes
from seed_rl.grpc.structures import TensorSpec

_SHAPE = (84, 84, 4)
_ANSWER = 8
_CALLS_PER_CLOCK_READ = 20
_CALLS_PER_LOOP = 100

EXAMPLE = np.full(_SHAPE, _ANSWER - 1, np.uint8)
"""The argument that all clients send. The result is an int32."""


def batched_function() -> Any:
    """The function that is called: a trivial tf.function over the batch."""
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([None, *_SHAPE], tf.uint8)])
    def frame(x: tf.Tensor) -> tf.Tensor:
        return tf.cast(x[:, 0, 0, 0], tf.int32) + 1

    return frame


def serve_op(addresses: Sequence[str], *tls: str) -> None:
    """Runs the op's server at all addresses; `tls`: certificate and key, to encrypt TCP."""
    from seed_rl.grpc import ops
    from seed_rl.grpc.channel_options import ServerOptions

    certificate, key = tls or (None, None)
    options = ServerOptions(tls_certificate=certificate, tls_key=key)
    server = ops.Server(list(addresses), options)
    server.bind(batched_function())
    server.start()
    processes.serve_commands(server.stats, server.ports)


def serve_grpcio(*addresses: str) -> None:
    """Runs plain Python servers, one per address."""
    from benchmarks import grpcio_server

    foo = batched_function()
    servers = [
        grpcio_server.Server(
            address,
            lambda x: [foo(x).numpy()],
            "frame",
            [TensorSpec("uint8", (None, *_SHAPE))],
            TensorSpec("int32", (None,)),
        )
        for address in addresses
    ]
    processes.serve_commands(
        lambda: [server.counters for server in servers], [server.port for server in servers]
    )


def numpy_client() -> None:
    """Runs one client without TensorFlow."""
    from seed_rl.common.system import scheduling
    from seed_rl.grpc.numpy_client import Client

    scheduling.use_batch_scheduling()  # As actors do.
    opened: dict[str, Client] = {}

    def run(address: str, clients: int, seconds: float) -> list[float]:
        assert clients == 1
        if address not in opened:
            opened[address] = Client(address)
        foo = opened[address].functions["frame"]
        return _run_for(seconds, lambda: _call_often(foo, EXAMPLE))

    processes.serve_commands(run)


def tf_clients(kind: str) -> None:
    """Runs TensorFlow clients, each in a thread of this process; `kind` is "loop" or "eager"."""
    import tensorflow as tf

    from seed_rl.grpc import ops

    calls: list[Callable[[], int]] = []

    def prepare(address: str) -> Callable[[], int]:
        foo, x = ops.Client(address).frame, tf.constant(EXAMPLE)
        if kind == "eager":
            return lambda: _call_often(foo, x)

        @tf.function
        def loop() -> tf.Tensor:
            result = tf.constant(0)
            for _ in tf.range(_CALLS_PER_LOOP):
                result = foo(x)
            return result

        def run_loop() -> int:
            assert loop() == _ANSWER
            return _CALLS_PER_LOOP

        return run_loop

    def run(address: str, clients: int, seconds: float) -> list[float]:
        while len(calls) < clients:
            calls.append(prepare(address))
        totals: list[list[float]] = []
        threads = [
            threading.Thread(target=lambda call=call: totals.append(_run_for(seconds, call)))
            for call in calls
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(totals) == clients, "a client failed"
        return [sum(total[0] for total in totals), sum(total[1] for total in totals)]

    processes.serve_commands(run)


def _call_often(foo: Callable[[Any], Any], x: Any) -> int:
    for _ in range(_CALLS_PER_CLOCK_READ):
        result = foo(x)
    assert result == _ANSWER
    return _CALLS_PER_CLOCK_READ


def _run_for(seconds: float, call: Callable[[], int]) -> list[float]:
    """Calls for `seconds` after a warm-up; returns [total calls, calls per second]."""
    total = 0
    start = time.perf_counter()
    while time.perf_counter() < start + 0.25 * seconds:
        total += call()
    calls, start = 0, time.perf_counter()
    while True:
        calls += call()
        elapsed = time.perf_counter() - start
        if elapsed >= seconds:
            return [total + calls, calls / elapsed]


def main(role: str, *addresses: str) -> None:
    """Runs one role until stdin is closed."""
    if role in ("op", "TLS"):
        serve_op(addresses[:2], *addresses[2:])
    elif role == "grpcio":
        serve_grpcio(*addresses)
    elif role == "numpy":
        numpy_client()
    else:
        tf_clients(role)
    sys.stdout.flush()
    os._exit(0)  # Skips tearing down TensorFlow, which takes time.


if __name__ == "__main__":
    main(*sys.argv[1:])
