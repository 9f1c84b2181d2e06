"""Compares the training speed of two checkouts, which alternate in short windows.

    python -m benchmarks.compare --before=OTHER_CHECKOUT [--workload=W1] [--windows=20]

Machines are noisy: the same program may be a third slower ten minutes later. So both checkouts run
at the same time, each with its learner and actors, but take turns: the processes of one are stopped
(SIGSTOP) while the other works. They switch every few seconds, so that both see the same
conditions. `OTHER_CHECKOUT` needs its native libraries (run `python setup.py build_ext --inplace`
there).
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import report, training
from benchmarks.processes import cpu_seconds
from benchmarks.workloads import WORKLOADS
from seed_rl.common.run_files import progress


class System:
    """The learner and the actors of one checkout, running or stopped."""

    def __init__(self, checkout: Path, args: argparse.Namespace, logdir: Path):
        logdir.mkdir()
        self.logdir = logdir
        self.processes = training.start_system(args, logdir, checkout)
        while not self._frames():
            if self.processes[0].poll() is not None:
                self.end()
                sys.exit((logdir / "learner-0.log").read_text())
            time.sleep(0.2)
        time.sleep(args.warmup)

    def stop(self) -> None:
        self._signal(signal.SIGSTOP)

    def work(self, seconds: float) -> tuple[float, float, float]:
        """Runs for `seconds`; returns frames, CPU seconds of the learner and of the actors."""
        before = self._counters()
        self._signal(signal.SIGCONT)
        time.sleep(seconds)
        self.stop()
        frames, learner, actors = (
            now - then for now, then in zip(self._counters(), before, strict=True)
        )
        return frames, learner, actors

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def _counters(self) -> tuple[float, float, float]:
        learner, *actors = [cpu_seconds(process.pid) for process in self.processes]
        return self._frames(), learner, sum(actors)

    def _frames(self) -> int:
        # Not `progress.read`: another version may write other fields.
        try:
            return int(json.loads((self.logdir / progress.FILE_NAME).read_text())["frames"])
        except (OSError, ValueError):
            return 0

    def _signal(self, number: signal.Signals) -> None:
        for process in self.processes:
            process.send_signal(number)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--before", required=True, type=Path, help="the other checkout")
    parser.add_argument("--workload", choices=sorted(WORKLOADS), default="W1")
    parser.add_argument("--compute_dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--actors", type=int, default=2, help="number of actors")
    parser.set_defaults(num_envs=None)
    parser.add_argument("--windows", type=int, default=20, help="windows per checkout")
    parser.add_argument("--seconds", type=float, default=6, help="length of a window")
    parser.add_argument("--warmup", type=float, default=10, help="seconds before measuring")
    parser.add_argument("--json", metavar="FILE", help="also write the results to FILE")
    parser.set_defaults(jit="auto")
    args = parser.parse_args()
    now = Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory() as folder:
        systems: dict[str, System] = {}
        try:
            for name, checkout in (("before", args.before.resolve()), ("now", now)):
                systems[name] = System(checkout, args, Path(folder) / name)
                systems[name].stop()
            windows: dict[str, list[tuple[float, float, float]]] = {name: [] for name in systems}
            for index in range(args.windows):
                for name in sorted(systems, reverse=bool(index % 2)):
                    windows[name].append(systems[name].work(args.seconds))
        finally:
            for system in systems.values():
                system.end()
    _print(windows, args)


def _print(windows: dict[str, list[tuple[float, float, float]]], args: argparse.Namespace) -> None:
    rows = []
    speeds = {}
    for name, counted in windows.items():
        frames, learner, actors = (sum(values) for values in zip(*counted, strict=True))
        transitions = frames / WORKLOADS[args.workload].frames_per_transition
        speeds[name] = frames / (args.seconds * args.windows)
        rows.append(
            [
                name,
                f"{speeds[name]:,.0f}",
                f"{learner / transitions * 1e6:.0f}",
                f"{actors / transitions * 1e6:.0f}",
            ]
        )
    report.print_table(
        f"{args.workload} ({args.compute_dtype}), {args.windows} x {args.seconds:g} s each",
        ["checkout", "frames/s", "learner, core-µs per transition", "actors"],
        rows,
    )
    pairs = [
        after[0] / before[0]
        for after, before in zip(windows["now"], windows["before"], strict=True)
        if before[0]
    ]
    spread = statistics.stdev(pairs) / len(pairs) ** 0.5 if len(pairs) > 1 else float("nan")
    print(
        f"\nnow / before: {speeds['now'] / speeds['before']:.3f} overall; "
        f"windows: median {statistics.median(pairs):.3f}, standard error {spread:.3f}"
    )
    results = {f"{name}_frames_per_s": speed for name, speed in speeds.items()}
    report.write_json(args.json, {**results, "ratio": speeds["now"] / speeds["before"]})


if __name__ == "__main__":
    main()
