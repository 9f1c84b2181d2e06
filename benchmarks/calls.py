"""How fast is a call? The op against a raw C++ ping-pong and against plain Python grpcio.

    python -m benchmarks.calls [--json=FILE] [--seconds=S] [--rounds=N] [--quick]

Two comparisons, each for scalars and 84x84x4 frames, 1 and 8 clients, Unix sockets and TCP:

*Servers* under the same load, which a C++ program makes by sending call frames: the op's server; a
raw C++ server that answers every message at once with ready bytes, which is what gRPC itself allows
(rawN has N network threads, and the better one counts); and a server in plain Python with grpcio
that batches and runs the same tf.function.

*Whole paths*, client and server: the op's TensorFlow client (in a tf.function's loop, and eagerly;
all clients are threads of one process), the NumPy client (a process per client) with the op's
server, and the NumPy client with the grpcio server.

`op_over_raw` and `op_over_grpcio` in the JSON are medians over the rounds of the ratio in calls/s.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import pathlib
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import call_workers, processes, report
from seed_rl.grpc import wire

_MAX_CLIENTS = 8
_WARM_UP = 0.25  # Of a measurement's length.


@dataclasses.dataclass(frozen=True)
class Cell:
    """One situation to measure."""

    transport: str
    payload: str
    clients: int

    def __str__(self) -> str:
        return f"{self.transport}, {self.payload}, {self.clients}"


HEADLINE = Cell("unix", "frame", 8)


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Calls per second, and the server's CPU time per call in microseconds."""

    calls_per_s: float
    server_us: float


class Server:
    """A server process and where it listens."""

    def __init__(self, program: processes.Program, listening: dict[tuple[str, str], str]):
        """`listening` has the address by transport and payload."""
        self._program = program
        self._listening = listening

    def measure(self, load: Callable[[str], tuple[float, float]], cell: Cell) -> Measurement:
        """Runs `load(address)`, which returns the number of calls and calls per second."""
        before = processes.cpu_seconds(self._program.pid)
        calls, calls_per_s = load(self._listening[cell.transport, cell.payload])
        used = processes.cpu_seconds(self._program.pid) - before
        return Measurement(calls_per_s, 1e6 * used / calls)


def start_raw(folder: str, threads: int) -> processes.Program:
    """The C++ ping-pong, with this many network threads."""
    reply = pathlib.Path(folder, "reply")
    reply.write_bytes(wire.encode_reply(0, [np.array(8, np.int32)]))
    command = [processes.compile_native("raw_server"), str(reply), str(threads)]
    return processes.Program([*command, *addresses(folder, f"raw{threads}")])


def start_worker(folder: str, role: str) -> processes.Program:
    """A server in Python: "op" or "grpcio"."""
    return processes.Worker("benchmarks.call_workers", role, *addresses(folder, role))


def addresses(folder: str, name: str) -> list[str]:
    """What a server is told to listen at: for each payload a Unix socket, then a port."""
    unix = [f"unix:{folder}/{name}_{payload}" for payload in call_workers.PAYLOADS]
    return unix + ["localhost:0"] * len(unix)


def wait_for_server(program: processes.Program, folder: str, name: str) -> Server:
    """The server, when it has said at which ports it listens."""
    ports = json.loads(program.wait_ready())
    keys = itertools.product(("unix", "tcp"), call_workers.PAYLOADS)
    listening = {
        key: address if address.startswith("unix:") else f"localhost:{port}"
        for key, address, port in zip(keys, addresses(folder, name), ports, strict=True)
    }
    return Server(program, listening)


def cc_load(function: int, folder: str, cell: Cell, seconds: float) -> Any:
    """Load by the C++ program, calling function number `function`."""
    call = pathlib.Path(folder, f"call_{cell.payload}_{function}")
    call.write_bytes(wire.encode_call(0, function, [call_workers.example(cell.payload)]))
    program = processes.compile_native("load_client")

    def load(address: str) -> tuple[float, float]:
        # A thread per client: actors are apart, too.
        numbers = map(str, (cell.clients, cell.clients, _WARM_UP * seconds, seconds))
        done = subprocess.run([program, address, str(call), *numbers], capture_output=True)
        if done.returncode:
            raise SystemExit(f"error: load on {address} failed: {done.stderr.decode()}")
        result = json.loads(done.stdout)
        if result["errors"]:
            raise SystemExit(f"error: {result['errors']} of the calls to {address} failed")
        calls_per_s = result["calls"] / result["seconds"]
        return calls_per_s * (1 + _WARM_UP) * seconds, calls_per_s

    return load


def worker_load(workers: list[processes.Worker], cell: Cell, seconds: float) -> Any:
    """Load by Python clients, spread evenly over the workers."""

    def load(address: str) -> tuple[float, float]:
        for worker in workers:
            clients = cell.clients // len(workers)
            command = {"address": address, "payload": cell.payload, "clients": clients}
            worker.send(**command, seconds=seconds)
        results = [worker.receive() for worker in workers]
        return sum(result[0] for result in results), sum(result[1] for result in results)

    return load


Results = dict[tuple[Cell, str], list[Measurement]]


def measure_servers(
    servers: dict[str, Server], cells: list[Cell], folder: str, options: Any
) -> Results:
    """All servers in all situations under the load of the C++ program."""
    payloads = list(call_workers.PAYLOADS)
    contestants = {}
    for cell, (name, server) in itertools.product(cells, servers.items()):
        function = payloads.index(cell.payload) if name == "op" else 0
        load = cc_load(function, folder, cell, options.seconds)
        contestants[cell, name] = functools.partial(server.measure, load, cell)
    return report.interleave(contestants, options.rounds)


def measure_paths(servers: dict[str, Server], cells: list[Cell], options: Any) -> Results:
    """Python clients with the op's server and with grpcio's, in all situations."""
    with contextlib.ExitStack() as stack:

        def start(role: str) -> processes.Worker:
            return stack.enter_context(processes.Worker("benchmarks.call_workers", role))

        loop, eager = start("loop"), start("eager")
        numpy_clients = [start("numpy") for _ in range(_MAX_CLIENTS)]
        for worker in (loop, eager, *numpy_clients):
            worker.wait_ready()
        contestants = {}
        for cell in cells:
            paths = {
                "TF loop": ([loop], servers["op"]),
                "TF eager": ([eager], servers["op"]),
                "NumPy": (numpy_clients[: cell.clients], servers["op"]),
                "NumPy, grpcio": (numpy_clients[: cell.clients], servers["grpcio"]),
            }
            for name, (workers, server) in paths.items():
                load = worker_load(workers, cell, options.seconds)
                contestants[cell, name] = functools.partial(server.measure, load, cell)
        return report.interleave(contestants, options.rounds)


def ratio(results: Results, cell: Cell, name: str, references: list[str]) -> float:
    """Median over the rounds of calls/s against the best of the references."""
    medians = {reference: median(results[cell, reference]) for reference in references}
    best = max(medians, key=lambda reference: medians[reference])
    return report.median_ratio(
        [m.calls_per_s for m in results[cell, name]], [m.calls_per_s for m in results[cell, best]]
    )


def median(measurements: list[Measurement]) -> float:
    """Median calls/s."""
    return statistics.median(m.calls_per_s for m in measurements)


def median_us(measurements: list[Measurement]) -> float:
    """Median CPU time of the server per call, in microseconds."""
    return statistics.median(m.server_us for m in measurements)


def print_results(
    title: str, results: Results, cells: list[Cell], ratios: dict[str, tuple[str, list[str]]]
) -> None:
    """Prints calls/s and server CPU per call of each contestant, and ratios (name, references)."""
    names = list(dict.fromkeys(name for _, name in results))
    rates: list[list[object]] = []
    times: list[list[object]] = []
    for cell in cells:
        found = [results[cell, name] for name in names]
        row = [cell.transport, cell.payload, cell.clients]
        compared = [f"{ratio(results, cell, *pair):.2f}" for pair in ratios.values()]
        rates.append([*row, *(round(median(f)) for f in found), *compared])
        times.append([*row, *(round(median_us(f), 1) for f in found)])
    columns = ["transport", "payload", "clients", *names]
    report.print_table(f"{title}: calls/s", [*columns, *ratios], rates)
    report.print_table(f"{title}: CPU time of the server per call, µs", columns, times)


def to_json(results: Results) -> list[dict[str, Any]]:
    """Every measurement."""
    return [
        {
            **dataclasses.asdict(cell),
            "contestant": name,
            "calls_per_s": [round(m.calls_per_s, 1) for m in found],
            "server_us_per_call": [round(m.server_us, 2) for m in found],
        }
        for (cell, name), found in results.items()
    ]


def main() -> None:
    """Runs the benchmark."""
    parser = report.parser(__doc__ or "", seconds=0.7, rounds=5)
    parser.add_argument("--quick", action="store_true", help="only 8 clients, frames, Unix sockets")
    options = parser.parse_args()
    cells = [
        Cell(*c)
        for c in itertools.product(("unix", "tcp"), call_workers.PAYLOADS, (1, _MAX_CLIENTS))
    ]
    cells = [HEADLINE] if options.quick else cells
    with tempfile.TemporaryDirectory(prefix="seed_rl_") as folder, contextlib.ExitStack() as stack:
        programs = {
            name: stack.enter_context(start_worker(folder, name)) for name in ("op", "grpcio")
        }
        programs |= {f"raw{n}": stack.enter_context(start_raw(folder, n)) for n in (1, 2)}
        servers = {name: wait_for_server(p, folder, name) for name, p in programs.items()}
        served = measure_servers(servers, cells, folder, options)
        raw = [name for name in servers if name.startswith("raw")]
        ratios = {"op/raw": ("op", raw), "op/grpcio": ("op", ["grpcio"])}
        print_results("Servers under C++ load", served, cells, ratios)
        paths = measure_paths(servers, cells, options)
    names = ("TF loop", "TF eager", "NumPy")
    path_ratios = {f"{name}/grpcio": (name, ["NumPy, grpcio"]) for name in names}
    print_results("Whole paths with Python clients", paths, cells, path_ratios)
    summary = {
        "op_over_raw": ratio(served, HEADLINE, "op", raw),
        "op_over_grpcio": ratio(served, HEADLINE, "op", ["grpcio"]),
        "tf_loop_over_grpcio": ratio(paths, HEADLINE, "TF loop", ["NumPy, grpcio"]),
        "tf_eager_over_grpcio": ratio(paths, HEADLINE, "TF eager", ["NumPy, grpcio"]),
        "numpy_over_grpcio": ratio(paths, HEADLINE, "NumPy", ["NumPy, grpcio"]),
    }
    print(f"{HEADLINE}: " + ", ".join(f"{k} {v:.2f}" for k, v in summary.items()))
    results = {"servers": to_json(served), "paths": to_json(paths)}
    report.write_json(options.json, {**summary, "headline": str(HEADLINE), **results})


if __name__ == "__main__":
    main()
