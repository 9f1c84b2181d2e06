"""Plays thousands of actors against a learner, and measures what they cost it.

    python -m benchmarks.load [--load=cartpole] [--actors=2000] [--envs_per_actor=4] [--seconds=60]

A real learner trains; the actors are one process that sends recorded steps, each actor on its own
connection, with its own environment ids and its own life. Measured in turn:

1. the learner's memory with the actors connected but silent, with their streams of calls open, and
   after an unroll of each environment
2. playing: steps and calls per second, how long calls take, and errors
3. a storm: all actors lose their connection at once and come back as actors do, asking for the
   functions and the status first

Each actor always has a call under way, so that the learner is the bottleneck and calls wait long.
The exit code is 1 if there was an error, or if not all actors were back in time.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import processes, report, secured, training_parts
from benchmarks.load_actors import Actors, Played, record
from benchmarks.load_learner import LOADS, Counters, Learner
from benchmarks.workloads import Workload

MAX_STORM_S = 30.0
"""How long all actors may take to come back."""

_RECORDED_CALLS = 256
_SPARE_DESCRIPTORS = 256
_SETTLE_S = 3.0
_STORM_LIMIT_S = 120.0
_AFTER_S = 5.0
_TRAINING_LIMIT_S = 120
_SEED = 1
_ENOUGH_ACTORS = 500  # With fewer, what the first connections cost hides what each costs.


def main() -> None:
    """Runs the benchmark."""
    args = parse()
    needs_descriptors(args.actors)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # Ends the learner.
    with tempfile.TemporaryDirectory(prefix="seed_rl_") as folder:
        results = run(args, Path(folder))
    print_results(args, results)
    report.write_json(args.json, results)
    sys.exit(bool(results["problems"]))


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The options; by default, of the command line."""
    parser = report.parser(__doc__ or "", seconds=60, rounds=1)
    parser.add_argument("--load", choices=sorted(LOADS), default="cartpole", help="what to train")
    parser.add_argument("--actors", type=int, default=2000)
    parser.add_argument("--envs_per_actor", type=int, default=4)
    parser.add_argument(
        "--warmup",
        type=float,
        default=5,
        help="seconds in which the actors begin, one after the other, and again after the first "
        "training step; not measured",
    )
    parser.add_argument("--tls", action="store_true", help="encrypt the connections")
    parser.add_argument(
        "--flag",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a flag of the learner; may be repeated",
    )
    args = parser.parse_args(argv)
    if min(args.actors, args.envs_per_actor) < 1:
        parser.error("--actors and --envs_per_actor must be at least 1.")
    for flag in args.flag:
        if "=" not in flag:
            parser.error(f"--flag={flag}: expected NAME=VALUE.")
    return args


def needs_descriptors(actors: int) -> None:
    """Raises the limit of open files of this process and those it starts.

    Raises:
      SystemExit: the hard limit is too low.
    """
    # In a storm an actor's old connection may still be open on either side when it opens others,
    # and a connection may take two files of the learner.
    needed = 4 * actors + _SPARE_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise SystemExit(
            f"error: {actors} actors need {needed} open files, but the hard limit is {hard}. Raise "
            f"it as root (`ulimit -Hn {needed}`, or LimitNOFILE, --ulimit nofile), or use fewer "
            "--actors."
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def run(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Runs learner and actors; returns what was measured."""
    load = LOADS[args.load]
    tls = secured.make_secrets(folder / "secrets") if args.tls else None
    flags = dict(flag.split("=", 1) for flag in args.flag)
    num_envs = args.actors * args.envs_per_actor
    with contextlib.ExitStack() as stack:
        learner = stack.enter_context(
            Learner(load, folder, num_envs, args.envs_per_actor, flags, tls)
        )
        env = stack.enter_context(
            contextlib.closing(
                training_parts.environments(dataclasses.replace(load, num_envs=args.envs_per_actor))
            )
        )
        recording = folder / "recording"
        call_bytes = record(learner.client, env, _RECORDED_CALLS, _SEED, recording)
        actors = stack.enter_context(
            Actors(learner.address, recording, args.actors, tls.actor["tls_ca"] if tls else None)
        )
        actors.wait_ready()
        results = measure(args, load, learner, actors)
    return {**results, "call_bytes": call_bytes}


def measure(
    args: argparse.Namespace, load: Workload, learner: Learner, actors: Actors
) -> dict[str, Any]:
    """Measures memory, playing and a storm."""
    settle_s = min(_SETTLE_S, args.seconds)
    memory = {"at the start": learner.memory_mib(settle_s)}
    already_open = learner.connections()
    phases = {"connect": actors.connect()}
    memory["actors connected, silent"] = learner.memory_mib(settle_s)
    phases["open"] = actors.open()
    memory["streams of calls open"] = learner.memory_mib(settle_s)
    open_streams = learner.connections() - already_open
    phases["warm-up"] = actors.play(args.warmup, args.warmup)
    # The first training step, which traces and compiles, is not to be measured.
    limit = time.monotonic() + _TRAINING_LIMIT_S
    while not learner.counters().frames and time.monotonic() < limit:
        phases["until training"] = actors.play(1)
    if "until training" in phases:
        phases["warm-up of training"] = actors.play(args.warmup)
    before = learner.counters()
    phases["play"] = actors.play(args.seconds)
    after = learner.counters()
    memory["after playing"] = learner.memory_mib(settle_s)
    before_storm_s = processes.cpu_seconds(learner.pid)
    phases["storm"] = actors.storm(_STORM_LIMIT_S)
    storm_cpu_s = processes.cpu_seconds(learner.pid) - before_storm_s
    phases["after the storm"] = actors.play(min(_AFTER_S, args.seconds))
    memory["after the storm"] = learner.memory_mib(settle_s)
    num_envs = args.actors * args.envs_per_actor
    return {
        "actors": args.actors,
        "envs_per_actor": args.envs_per_actor,
        "tls": args.tls,
        **rates(load, before, after, phases["play"]),
        "storm_s": phases["storm"].seconds,
        "storm_learner_cpu_s": storm_cpu_s,
        "storm_actors_cpu_s": phases["storm"].cpu_s,
        "storm_first_reply_ms": phases["storm"].first_waits_ms,
        "connect_s": phases["connect"].seconds,
        "open_streams": open_streams,
        "idle_connection_kib": kib(memory, 0, 1, args.actors),
        "open_stream_kib": kib(memory, 0, 2, args.actors),
        "env_kib": kib(memory, 2, 3, num_envs),
        "errors": sum(phase.errors for phase in phases.values()),
        "lost": sum(phase.lost for phase in phases.values()),
        "memory_mib": memory,
        "phases": {name: dataclasses.asdict(phase) for name, phase in phases.items()},
        "problems": problems(args, phases, open_streams, bool(before.frames)),
    }


def rates(load: Workload, before: Counters, after: Counters, played: Played) -> dict[str, Any]:
    """What happened between two looks at the learner's counters."""
    seconds = after.time - before.time
    calls, steps = after.calls - before.calls, after.steps - before.steps
    batches = after.batches - before.batches
    return {
        "steps_per_s": steps / seconds,
        "frames_per_s": steps * load.frames_per_transition / seconds,
        "trained_frames_per_s": (after.frames - before.frames) / seconds,
        "calls_per_s": calls / seconds,
        "round_trip_ms": played.waits_ms,
        "queue_wait_ms": 1e3 * (after.queue_s - before.queue_s) / max(1, calls),
        "run_ms": 1e3 * (after.run_s - before.run_s) / max(1, batches),
        "mean_batch": steps / max(1, batches),
        "learner_us_per_step": 1e6 * (after.cpu_s - before.cpu_s) / max(1, steps),
        "actors_us_per_call": 1e6 * played.cpu_s / max(1, played.calls),
    }


def kib(memory: dict[str, float], first: int, last: int, number: int) -> float:
    """How much memory grew between two measurements, in KiB for each of `number`."""
    values = list(memory.values())
    return 1024 * (values[last] - values[first]) / number


def problems(
    args: argparse.Namespace, phases: dict[str, Played], open_streams: int, trains: bool
) -> list[str]:
    """What went wrong, in words."""
    found = [] if trains else [f"the learner did not train within {_TRAINING_LIMIT_S} s"]
    for name, phase in phases.items():
        failed = phase.errors + phase.lost
        if failed:
            found.append(f"{name}: {failed} errors, the first: {phase.problem}")
        if name in ("connect", "open", "storm") and phase.missing:
            found.append(f"{name}: {phase.missing} of {args.actors} actors did not get there")
    if open_streams != args.actors:
        found.append(f"the learner had {open_streams} streams of calls, not {args.actors}")
    if phases["storm"].seconds > MAX_STORM_S:
        found.append(f"the storm took {phases['storm'].seconds:.0f} s, not {MAX_STORM_S:.0f}")
    return found


def print_results(args: argparse.Namespace, results: dict[str, Any]) -> None:
    """Prints tables, and what went wrong."""
    encryption = ", TLS" if args.tls else ""
    rows: list[tuple[str, str]] = [
        ("environment frames/s", f"{results['frames_per_s']:,.0f}"),
        ("  of which trained on (reported once a second)", _count(results["trained_frames_per_s"])),
        ("steps/s", _count(results["steps_per_s"])),
        ("calls/s", _count(results["calls_per_s"])),
        ("bytes of a call", _count(results["call_bytes"])),
        ("round trip, ms: median, 99th percentile, longest", _triple(results["round_trip_ms"])),
        ("wait for a batch, ms, mean", f"{results['queue_wait_ms']:.1f}"),
        ("inference batch, ms, mean", f"{results['run_ms']:.1f}"),
        ("inference batch, rows, mean", f"{results['mean_batch']:.1f}"),
        ("CPU of the learner per step, µs", f"{results['learner_us_per_step']:.0f}"),
        ("CPU of the actors per call, µs", f"{results['actors_us_per_call']:.0f}"),
        ("storm: seconds until all had a reply", f"{results['storm_s']:.1f}"),
        ("storm: first reply, ms", _triple(results["storm_first_reply_ms"])),
        (
            "storm: CPU seconds of the learner, of the actors",
            f"{results['storm_learner_cpu_s']:.1f}, {results['storm_actors_cpu_s']:.1f}",
        ),
        ("errors, connections lost", f"{results['errors']}, {results['lost']}"),
    ]
    report.print_table(
        f"{args.actors:,} actors of {args.envs_per_actor} environments{encryption}; "
        f"{LOADS[args.load].about}",
        ["", "measured"],
        rows,
    )
    report.print_table(
        "Memory of the learner",
        ["", "MiB"],
        [(name, f"{mib:,.0f}") for name, mib in results["memory_mib"].items()],
    )
    if args.actors >= _ENOUGH_ACTORS:
        print(
            f"{results['idle_connection_kib']:.1f} KiB per silent connection, "
            f"{results['open_stream_kib']:.1f} with its stream of calls; "
            f"{results['env_kib']:.1f} KiB per environment id, with what inference and training "
            "take\n"
        )
    for problem in results["problems"]:
        print(f"FAILS: {problem}")


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _triple(values: list[float] | None) -> str:
    return "–" if values is None else ", ".join(f"{value:,.0f}" for value in values)


if __name__ == "__main__":
    main()
