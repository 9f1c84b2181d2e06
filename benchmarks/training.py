"""Measures which fraction of the machine's ideal training throughput the whole system reaches.

    python -m benchmarks.training [--workload=W1] [--compute_dtype=float32] [--json=FILE]

First each part is measured alone, in its own process, as CPU time per transition: stepping the
environments, inferring a batch, training. A machine that did nothing else, and never waited, would
process

    ideal = cores / (t_env + t_infer + t_train)

transitions per second. With an accelerator, inference and training are measured in its wall time,
and the ideal is the slower of the accelerator and of the cores that step environments. Then learner
and actors run as users start them; their throughput divided by the ideal is the efficiency. The
difference is broken down by the processes' CPU time and the cores' idle time.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.processes import as_flags, cpu_seconds
from benchmarks.training_parts import PARTS, on_accelerator
from benchmarks.workloads import WORKLOADS, chosen
from seed_rl.common.run_files import progress
from seed_rl.common.system import processor

_START_LIMIT_S = 600.0  # A GPU's driver may compile kernels for minutes.


def main() -> None:
    """Runs the benchmark, or one part of it in a child process."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--workload", choices=sorted(WORKLOADS), default="W1")
    parser.add_argument("--compute_dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--jit", choices=("auto", "true", "false"), default="auto")
    parser.add_argument(
        "--actors", type=int, help="number of actors, which share the environments equally"
    )
    parser.add_argument("--num_envs", type=int, help="environments of all actors")
    parser.add_argument(
        "--seconds", type=float, default=60, help="time to measure the whole system"
    )
    parser.add_argument("--warmup", type=float, default=20, help="seconds before measuring")
    parser.add_argument(
        "--part_seconds", type=float, default=6, help="time to measure each part alone"
    )
    parser.add_argument("--json", metavar="FILE", help="also write the results to FILE")
    parser.add_argument("--part", choices=sorted(PARTS), help="measure only this part")
    args = parser.parse_args()
    workload = chosen(args)
    args.actors = args.actors or workload.actors
    if args.compute_dtype != "float32" and not workload.network:
        parser.error(f"{args.workload} has no --compute_dtype.")
    if args.part:
        workload.environments().prepare_tensorflow()
        us = PARTS[args.part](args)
        print(json.dumps({"us": us, "on_accelerator": args.part != "env" and on_accelerator()}))
        return
    results = run(args)
    report.print_table(
        f"{args.workload} ({args.compute_dtype}): {workload.about}",
        ["part", "core-µs per transition", "share of the machine"],
        _rows(results, workload.num_envs),
    )
    print(
        f"\n{results['frames_per_s']:,.0f} of ideal {results['ideal_frames_per_s']:,.0f} "
        f"environment frames/s: efficiency {results['efficiency']:.2f}; "
        f"mean inference batch {results['mean_inference_batch']:.1f}"
    )
    report.write_json(args.json, results)


def run(args: argparse.Namespace) -> dict[str, float]:
    """Measures each part alone, then the whole system."""
    cores = processor.cores()
    measured = {name: measure_part(args, name) for name in PARTS}
    parts = {name: part["us"] for name, part in measured.items()}
    per_core = {name: part["us"] for name, part in measured.items() if not part["on_accelerator"]}
    bound = max(sum(per_core.values()) / cores, sum(parts.values()) - sum(per_core.values()))
    whole = measure_whole(args)
    workload = chosen(args)
    per_transition = 1e6 * workload.frames_per_transition / whole["frames"]
    ideal = 1e6 / bound * workload.frames_per_transition
    machine = cores * whole["seconds"] * per_transition
    busy = (whole["learner_cpu_s"] + whole["actors_cpu_s"]) * per_transition
    return {
        "efficiency": whole["frames"] / whole["seconds"] / ideal,
        "frames_per_s": whole["frames"] / whole["seconds"],
        "ideal_frames_per_s": ideal,
        **{f"{name}_us": value for name, value in parts.items()},
        "machine_us": machine,
        "actors_us": whole["actors_cpu_s"] * per_transition,
        "learner_us": whole["learner_cpu_s"] * per_transition,
        "idle_us": machine - busy,
        "mean_inference_batch": whole["mean_inference_batch"],
        "cores": cores,
    }


def _rows(r: dict[str, float], num_envs: int) -> list[list[str]]:
    rows = [
        ("environment alone", r["env_us"]),
        (f"inference alone (batch {num_envs})", r["infer_us"]),
        ("training alone", r["train_us"]),
        ("all actors, running together", r["actors_us"]),
        ("learner, running together", r["learner_us"]),
        (
            "  of which beyond inference and training",
            r["learner_us"] - r["infer_us"] - r["train_us"],
        ),
        ("other processes and idle cores", r["idle_us"]),
        ("the machine's total time", r["machine_us"]),
    ]
    return [[name, f"{value:.0f}", f"{value / r['machine_us']:.0%}"] for name, value in rows]


def measure_part(args: argparse.Namespace, part: str) -> dict[str, Any]:
    """Measures one part alone, in a process of its own.

    Returns:
      `us`: microseconds per transition; `on_accelerator`: whether of wall time, else of a core's.
    """
    command = [sys.executable, "-m", "benchmarks.training", f"--part={part}"]
    command += [f"--workload={args.workload}", f"--compute_dtype={args.compute_dtype}"]
    command += [f"--actors={args.actors}", f"--part_seconds={args.part_seconds}"]
    command += [f"--num_envs={chosen(args).num_envs}", f"--jit={args.jit}"]
    output = subprocess.run(command, capture_output=True, text=True, env=_environment())
    if output.returncode:
        raise SystemExit(f"error: {' '.join(command)} failed:\n{output.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(output.stdout.splitlines()[-1])
    return result


def measure_whole(args: argparse.Namespace) -> dict[str, float]:
    """Runs learner and actors; returns what they did in a window of steady state."""
    with tempfile.TemporaryDirectory() as logdir:
        processes = start_system(args, Path(logdir))
        try:
            wait_for_training(Path(logdir), processes[0])
            time.sleep(args.warmup)
            before = _snapshot(Path(logdir), processes)
            time.sleep(args.seconds)
            after = _snapshot(Path(logdir), processes)
        finally:
            for process in reversed(processes):
                process.send_signal(signal.SIGTERM)
            for process in processes:
                process.wait(60)
    difference = {key: after[key] - before[key] for key in before}
    difference["mean_inference_batch"] = after["mean_inference_batch"]
    return difference


def start_system(args: argparse.Namespace, logdir: Path) -> list[subprocess.Popen[bytes]]:
    """Starts the learner and the actors; the learner comes first.

    Args:
      args: the benchmark's.
      logdir: of the run; the learner listens at `learner.sock` there.
    """
    workload = chosen(args)
    flags = dict(
        **workload.all_flags,
        logdir=logdir,
        server_address=f"unix:{logdir}/learner.sock",
        num_envs=workload.num_envs,
        env_batch_size=workload.num_envs // args.actors,
        jit=args.jit,
        save_model=False,
    )
    if workload.network:
        flags["compute_dtype"] = args.compute_dtype
    learner = _start(workload.program, flags, run_mode="learner")
    actors = [_start(workload.program, flags, run_mode="actor", task=i) for i in range(args.actors)]
    return [learner, *actors]


def _start(program: str, flags: dict[str, Any], **more: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", program, *as_flags({**flags, **more})]
    log = open(Path(flags["logdir"]) / f"{more['run_mode']}-{more.get('task', 0)}.log", "w")
    with log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=_environment())


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}


def wait_for_training(logdir: Path, learner: subprocess.Popen[bytes]) -> None:
    """Waits for the first training step.

    Raises:
      SystemExit: the learner ended, or takes too long; with the ends of the logs.
    """
    end = time.monotonic() + _START_LIMIT_S
    while (state := progress.read(logdir)) is None or state.frames == 0:
        if learner.poll() is not None or time.monotonic() > end:
            logs = [logdir / f"{name}-0.log" for name in ("learner", "actor")]
            sys.exit("\n".join(log.read_text()[-1000:] for log in logs if log.exists()))
        time.sleep(0.2)


def _snapshot(logdir: Path, processes: list[subprocess.Popen[bytes]]) -> dict[str, float]:
    """Counters just after the learner reported progress, which counts whole training steps."""
    last = progress.read(logdir)
    frames = last.frames if last else 0
    while (state := progress.read(logdir)) is None or state.frames == frames:
        time.sleep(0.002)
    learner, *actors = [cpu_seconds(process.pid) for process in processes]
    return {
        "seconds": state.time,
        "frames": state.frames,
        "learner_cpu_s": learner,
        "actors_cpu_s": sum(actors),
        "mean_inference_batch": state.mean_inference_batch,
    }


if __name__ == "__main__":
    main()
