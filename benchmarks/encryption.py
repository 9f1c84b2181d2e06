"""Measures what TLS costs, with and without it side by side.

    python -m benchmarks.encryption [--seconds=S] [--rounds=N] [--json=FILE]

*Calls alone*: two servers of a function that does nothing, alike but for the encryption, under the
load of C++ clients on TCP that send a call and wait for its reply: a frame of 84x84x4 bytes, or of
84x84. Server and clients fill the machine with encryption.

*With a learner*: two learners that train on Pong, under the load of actors that send four frames
of 84x84 in a call (`benchmarks.load`). `tls_over_plain` in the JSON is their ratio of calls/s, and
`tls_over_plain_alone` that of calls alone, for 8 clients and the larger frame; both are medians
over the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import itertools
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import calls, processes, report, secured, training_parts
from benchmarks.encrypted_server import FRAMES
from benchmarks.load_actors import Actors, record
from benchmarks.load_learner import LOADS, Learner
from seed_rl.grpc import wire

_SERVER = "benchmarks.encrypted_server"
_CLIENTS = (1, 8)
_HEADLINE = ("84x84x4", 8)
_PLAIN, _TLS = "plain", "TLS"
_ENVS_PER_ACTOR = 4
_RECORDED_CALLS = 256


def main() -> None:
    """Runs the benchmark."""
    parser = report.parser(__doc__ or "", seconds=0.7, rounds=5)
    parser.add_argument(
        "--learner_seconds", type=float, default=5, help="the same with a learner (%(default)s)"
    )
    parser.add_argument("--actors", type=int, default=64, help="actors of a learner (%(default)s)")
    args = parser.parse_args()
    alone, results = measure_calls(args)
    with_learner = measure_learners(args)
    report.write_json(
        args.json,
        {
            "tls_over_plain": report.median_ratio(with_learner[_TLS], with_learner[_PLAIN]),
            "tls_over_plain_alone": _ratio(alone, *_HEADLINE),
            "learner_calls_per_s": with_learner,
            "calls_per_s": results,
        },
    )


def measure_calls(args: argparse.Namespace) -> tuple[Any, dict[str, list[int]]]:
    """Measures calls alone; returns the measurements, and calls/s by name."""
    with tempfile.TemporaryDirectory(prefix="seed_rl_") as folder, contextlib.ExitStack() as stack:
        tls = secured.make_secrets(Path(folder) / "secrets")
        workers = {
            _PLAIN: stack.enter_context(processes.Worker(_SERVER)),
            _TLS: stack.enter_context(processes.Worker(_SERVER, *tls.learner.values())),
        }
        servers = {name: (worker.pid, worker.receive()) for name, worker in workers.items()}
        contestants = {}
        for frame, clients, name in itertools.product(FRAMES, _CLIENTS, servers):
            call = Path(folder, frame)
            example = np.zeros(FRAMES[frame], np.uint8)
            call.write_bytes(wire.encode_call(0, list(FRAMES).index(frame), [example]))
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
    return measured, {
        f"{frame}, {clients}, {name}": [round(m.calls_per_s) for m in found]
        for (frame, clients, name), found in measured.items()
    }


def measure_learners(args: argparse.Namespace) -> dict[str, list[float]]:
    """Measures calls/s of actors with a learner, by name."""
    load = dataclasses.replace(LOADS["pong"], num_envs=_ENVS_PER_ACTOR)
    with tempfile.TemporaryDirectory(prefix="seed_rl_") as folder, contextlib.ExitStack() as stack:
        tls = secured.make_secrets(Path(folder) / "secrets")
        env = stack.enter_context(contextlib.closing(training_parts.environments(load)))
        playing: dict[str, Actors] = {}
        for name, encryption in ((_PLAIN, None), (_TLS, tls)):
            tls_ca = encryption.actor["tls_ca"] if encryption else None
            place = Path(folder, name)
            place.mkdir()
            learner = stack.enter_context(
                Learner(load, place, args.actors * _ENVS_PER_ACTOR, _ENVS_PER_ACTOR, {}, encryption)
            )
            recording = place / "recording"
            record(learner.client, env, _RECORDED_CALLS, 1, recording)
            actors = stack.enter_context(Actors(learner.address, recording, args.actors, tls_ca))
            actors.wait_ready()
            actors.connect()
            actors.open()
            actors.play(args.learner_seconds, spread_s=args.learner_seconds)
            playing[name] = actors
        measured = report.interleave(
            {name: functools.partial(_play, actors, args) for name, actors in playing.items()},
            args.rounds,
        )
    ratio = report.median_ratio(measured[_TLS], measured[_PLAIN])
    plain, encrypted = (statistics.median(measured[name]) for name in (_PLAIN, _TLS))
    report.print_table(
        f"Calls of {args.actors} actors with a learner that trains on Pong, 4 frames in each",
        ["calls/s", "with TLS", "TLS / plain"],
        [[round(plain), round(encrypted), f"{ratio:.2f}"]],
    )
    return measured


def _play(actors: Actors, args: argparse.Namespace) -> float:
    played = actors.play(args.learner_seconds)
    if played.errors or played.lost:
        raise SystemExit(f"error: a call failed: {played.problem}")
    return played.calls / played.seconds


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
