"""Measures what TLS costs a call, with and without it side by side.

    python -m benchmarks.encryption [--seconds=S] [--rounds=N] [--json=FILE]

Two servers of a function that does nothing, alike but for the encryption, under the load of C++
clients on TCP that send a call and wait for its reply: a frame of 84x84x4 bytes, or of 84x84.
Server and clients fill the machine with encryption. `tls_over_plain` in the JSON is the ratio of
calls/s for 8 clients and the larger frame, the median over the rounds. `benchmarks.load` with and
without `--tls` shows what TLS costs a learner.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import calls, load_actors, processes, report, secured
from benchmarks.call_workers import FRAMES

_SERVER = ("benchmarks.call_workers", "frames")
_CLIENTS = (1, 8)
_HEADLINE = ("84x84x4", 8)
_PLAIN, _TLS = "plain", "TLS"


def main() -> None:
    """Runs the benchmark."""
    args = report.parser(__doc__ or "", seconds=0.7, rounds=5).parse_args()
    measured = measure_calls(args)
    report.write_json(
        args.json,
        {
            "tls_over_plain": _ratio(measured, *_HEADLINE),
            "calls_per_s": {
                f"{frame}, {clients}, {name}": [round(m.calls_per_s) for m in found]
                for (frame, clients, name), found in measured.items()
            },
        },
    )


def measure_calls(args: argparse.Namespace) -> dict[tuple[str, int, str], list[calls.Measurement]]:
    """The measurements by frame, number of clients, and encryption."""
    with tempfile.TemporaryDirectory(prefix="seed_rl_") as folder, contextlib.ExitStack() as stack:
        tls = secured.make_secrets(Path(folder) / "secrets")
        workers = {
            _PLAIN: stack.enter_context(processes.Worker(*_SERVER)),
            _TLS: stack.enter_context(processes.Worker(*_SERVER, *tls.learner.values())),
        }
        servers = {name: (worker.pid, worker.receive()) for name, worker in workers.items()}
        contestants = {}
        for frame, clients, name in itertools.product(FRAMES, _CLIENTS, servers):
            call = Path(folder, frame)
            example = np.zeros(FRAMES[frame], np.uint8)
            load_actors.write_call(call, list(FRAMES).index(frame), example)
            contestants[frame, clients, name] = functools.partial(
                _measure,
                *servers[name],
                call=call,
                clients=clients,
                seconds=args.seconds,
                tls_ca=tls.actor["tls_ca"] if name == _TLS else None,
            )
        measured = report.interleave(contestants, args.rounds)
    rows = [_row(measured, *case) for case in itertools.product(FRAMES, _CLIENTS)]
    columns = ["frame", "clients", "calls/s", "with TLS", "TLS / plain"]
    columns += ["CPU of the server per call, µs", "with TLS"]
    report.print_table("Calls over TCP", columns, rows)
    return measured


def _measure(pid: int, port: int, **load: Any) -> calls.Measurement:
    before = processes.cpu_seconds(pid)
    number, calls_per_s = calls.send_calls(f"localhost:{port}", **load)
    return calls.Measurement(calls_per_s, 1e6 * (processes.cpu_seconds(pid) - before) / number)


def _row(measured: Any, frame: str, clients: int) -> list[object]:
    plain, tls = (measured[frame, clients, name] for name in (_PLAIN, _TLS))
    return [
        frame,
        clients,
        round(calls.median(plain)),
        round(calls.median(tls)),
        f"{_ratio(measured, frame, clients):.2f}",
        f"{calls.median_us(plain):.1f}",
        f"{calls.median_us(tls):.1f}",
    ]


def _ratio(measured: Any, frame: str, clients: int) -> float:
    plain, tls = (
        [m.calls_per_s for m in measured[frame, clients, name]] for name in (_PLAIN, _TLS)
    )
    return report.median_ratio(tls, plain)


if __name__ == "__main__":
    main()
