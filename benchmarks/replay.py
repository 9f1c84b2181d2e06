"""Measures the replay's memory with real play, and its speed against a flat O(n) replay.

    python -m benchmarks.replay [--json=FILE] [--seconds=S] [--rounds=N]

*Bytes*: six Atari games are played, uniformly at random and epsilon-greedily (R2D2's ladder of
epsilons, 0.4 ** linspace(1, 8) over the environments, with a Q-function of random weights; training
runs log the figures of a trained agent). Unrolls of 121 steps that overlap by 41, with everything
that R2D2 stores besides frames, are inserted into the replay. Raw bytes are those of the same
arrays with every frame of every unroll in full, as in the original; used bytes are all the memory
that the replay takes. The projection is for 100,000 unrolls of mean size.

*Speed*: full replays of several sizes, filled with copies of this play, against `FlatReplay`, which
has the same interface over NumPy arrays, but samples in O(n) and compresses nothing. It can hold
Atari only while small, so the comparison at all sizes uses CartPole unrolls. Sampling includes
building a time-major batch. Times are CPU time of one thread; figures are medians over the rounds.
"""

from __future__ import annotations

import functools
import gc
import itertools
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.replay_contestants import FlatReplay, full_replay, new_replay
from benchmarks.replay_play import (
    POLICIES,
    atari_specs,
    concatenate,
    first,
    play_atari,
    play_small,
    small_specs,
)
from seed_rl.common.replay import memory
from seed_rl.common.replay.specs import Layout

GAMES = ("Pong", "Breakout", "Seaquest", "Qbert", "MsPacman", "MontezumaRevenge")
SIZES = (1_000, 100_000, 1_000_000)
"""Of replays, in unrolls."""

BATCH, INSERTED = 64, 8
PAPER_SIZE = 100_000
_UNROLLS = 128  # Per game and policy.

Figures = dict[str, float]


def main() -> None:
    """Runs the benchmark."""
    options = report.parser(__doc__ or "", seconds=3).parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # One core.

    bytes_figures, unrolls = measure_bytes()
    summary = summarize_bytes(bytes_figures)
    gc.collect()
    speeds = {}
    for title, specs, batch in (
        ("Atari", atari_specs(), unrolls),
        ("CartPole", small_specs(), play_small(512)),
    ):
        speeds[title] = compare_speed(title, specs, batch, options)
        gc.collect()
    report.write_json(options.json, {"bytes": bytes_figures, "summary": summary, "speed": speeds})


def measure_bytes() -> tuple[dict[str, Figures], Any]:
    """Returns figures by game and policy, and a batch with some unrolls of each."""
    specs = atari_specs()
    results, samples = {}, []
    for game in GAMES:
        for policy in POLICIES:
            unrolls = play_atari(game, policy, _UNROLLS)
            count = len(unrolls[0][0])
            replay = new_replay(specs, count)
            replay.insert(unrolls)
            stats = replay.stats()
            results[f"{game}, {policy}"] = {
                "raw_kb": stats.bytes_raw / count / 1e3,
                "used_kb": stats.bytes_used / count / 1e3,
                "compression": stats.compression,
            }
            samples.append(first(specs, unrolls, 16))
    report.print_table(
        "Bytes per unroll (121 steps, 84x84)",
        ("game, policy", "raw (kB)", "used (kB)", "raw / used"),
        [(name, *figures.values()) for name, figures in results.items()],
    )
    return results, concatenate(specs, samples)


def summarize_bytes(figures: dict[str, Figures]) -> Figures:
    """The median over games, and the projected size of the paper's replay."""
    used = statistics.mean(f["used_kb"] for f in figures.values())
    summary = {
        "median_compression": statistics.median(f["compression"] for f in figures.values()),
        "projected_gb": used * PAPER_SIZE / 1e6,
        "worst_projected_gb": max(f["used_kb"] for f in figures.values()) * PAPER_SIZE / 1e6,
    }
    report.print_table(
        f"{PAPER_SIZE:,} unrolls",
        ("median raw / used", "all games (GB)", "worst game (GB)"),
        [tuple(summary.values())],
    )
    return summary


def compare_speed(title: str, specs: Any, unrolls: Any, options: Any) -> dict[str, Figures]:
    """Measures both replays at all sizes that fit in 70 % of the available memory together."""
    makers: dict[str, Callable[..., Any]] = {"replay": full_replay, "flat": FlatReplay}
    unroll_gb = {
        "replay": _used_bytes(specs, unrolls) / 1e9,
        "flat": Layout(specs).unroll_bytes / 1e9,
    }
    inserted = _chunks(specs, unrolls)
    measures: dict[tuple[str, int], Callable[[], Figures]] = {}
    free_gb = 0.7 * memory.available_bytes() / 1e9
    for name, size in ((name, size) for size in SIZES for name in makers):
        if unroll_gb[name] * size <= free_gb:
            free_gb -= unroll_gb[name] * size
            replay = makers[name](specs, size, unrolls)
            measures[name, size] = functools.partial(
                measure_speed, replay, inserted, options.seconds
            )
    rounds = report.interleave(measures, options.rounds)
    nothing = [dict.fromkeys(("inserts_per_s", "samples_per_s", "batch_ms"), float("nan"))]
    results = {
        f"{name}, {size}": {
            "gb": unroll_gb[name] * size,
            **_medians(rounds.get((name, size), nothing)),
        }
        for name in makers
        for size in SIZES
    }
    report.print_table(
        f"{title} unrolls, batches of {BATCH}, one core",
        ("replay, unrolls", "memory (GB)", "inserts/s", "samples/s", "batch (ms)"),
        [(name, *figures.values()) for name, figures in results.items()],
    )
    return results


def measure_speed(replay: Any, inserted: list[Any], seconds: float) -> Figures:
    """Inserts and samples per second, and time per batch."""
    chunks = itertools.cycle(inserted)
    priorities = np.ones(INSERTED)
    insert_s = _seconds_per_call(lambda: replay.insert(next(chunks), priorities), seconds / 2)
    sample_s = _seconds_per_call(lambda: replay.sample(BATCH), seconds / 2)
    return {
        "inserts_per_s": INSERTED / insert_s,
        "samples_per_s": BATCH / sample_s,
        "batch_ms": sample_s * 1e3,
    }


def _chunks(specs: Any, unrolls: Any) -> list[Any]:
    """The unrolls in batches of `INSERTED`."""
    layout = Layout(specs)
    arrays, count = layout.arrays(unrolls)
    return [
        layout.pack(
            [
                np.ascontiguousarray(np.take(a, range(i, i + INSERTED), axis=1 if f.time else 0))
                for f, a in zip(layout.fields, arrays, strict=True)
            ]
        )
        for i in range(0, count - INSERTED + 1, INSERTED)
    ]


def _medians(rounds: list[Figures]) -> Figures:
    return {key: statistics.median(figures[key] for figures in rounds) for key in rounds[0]}


def _used_bytes(specs: Any, unrolls: Any) -> float:
    """Memory per unroll of a replay full of these."""
    count = Layout(specs).arrays(unrolls)[1]
    replay = new_replay(specs, count)
    replay.insert(unrolls)
    return replay.stats().bytes_used / count


def _seconds_per_call(call: Callable[[], Any], seconds: float) -> float:
    """Median CPU time of a call."""
    call()
    call()  # From the second call on, memory is reused.
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.thread_time()
        call()
        times.append(time.thread_time() - start)
    return statistics.median(times)


if __name__ == "__main__":
    main()
