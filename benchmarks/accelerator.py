"""What an accelerator does for a learner: one Markdown report.

    scripts/check_gpu.sh [--expect=cpu] [--quick]

1. Each agent trains for some steps, with actors, and must do so on the device.
2. Inference by batch size, and training steps, alone. On an accelerator in wall time, from the call
   to the actions on the host, and over a queue of training steps; on a CPU in a core's time.
3. The whole system: learner and actors as users start them, an actor per core.
4. The paper's network for DeepMind Lab, in bfloat16, with actors that send recorded random frames.

The exit code is 1 if a part failed; the others are reported all the same.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import load, report, training
from benchmarks.load_learner import LOADS
from benchmarks.workloads import WORKLOADS
from seed_rl.common.run_files import progress
from seed_rl.common.system import processor

_AGENTS = {
    "vtrace": "CartPole-v1",
    "r2d2": "CartPole-v1",
    "ppo": "CartPole-v1",
    "sac": "Pendulum-v1",
}
_SMOKE_FRAMES = 2000
_SMOKE_LIMIT_S = 180
_BATCHES = (1, 16, 64, 256, 1024)
_ENVS_PER_CORE = 16
_RUNS = (
    ("W1", "float32"),
    ("W1", "bfloat16"),
    ("W2", "bfloat16"),
    ("W3", "bfloat16"),
    ("W4", "float32"),
)


def main() -> None:
    """Runs all parts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--expect", default="gpu", help="device that must do the work: gpu, cpu, tpu"
    )
    parser.add_argument("--quick", action="store_true", help="a few seconds each, to try it out")
    args = parser.parse_args()
    args.part_seconds, args.seconds = (1.0, 4.0) if args.quick else (4.0, 15.0)
    args.runs = _RUNS[::4] if args.quick else _RUNS
    failed: list[str] = []
    _print_machine()
    for part in (agents, parts, whole_systems, deepmind_lab):
        with _reported(part.__name__, failed):
            part(args)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


@contextlib.contextmanager
def _reported(name: str, failed: list[str]) -> Iterator[None]:
    """Prints what goes wrong, and continues."""
    print(f"accelerator: {name}", file=sys.stderr)
    try:
        yield
    except (Exception, SystemExit):
        failed.append(name)
        print(f"**{name} failed:**\n\n```\n{traceback.format_exc().strip()[-1500:]}\n```\n")
    sys.stdout.flush()


def _print_machine() -> None:
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    with contextlib.suppress(OSError):
        gpus = subprocess.run(query, capture_output=True, text=True).stdout.strip()
        print("\n".join(f"- GPU: {line}" for line in gpus.splitlines()))
    for name, value in report.machine().items():
        print(f"- {name}: {value}")
    commit = ["git", "describe", "--always", "--dirty"]
    print(f"- commit: {subprocess.run(commit, capture_output=True, text=True).stdout.strip()}\n")


def agents(args: argparse.Namespace) -> None:
    """Trains with each agent as a user would, and checks the devices that it reports."""
    rows = []
    for agent, env in _AGENTS.items():
        with tempfile.TemporaryDirectory(prefix="seed_rl_") as folder:
            run = Path(folder) / "run"
            command = [sys.executable, "-m", "seed_rl.command", "train", agent, env]
            command += ["--actors=1", f"--logdir={run}"]
            command += [f"--total_environment_frames={_SMOKE_FRAMES}"]
            if agent == "r2d2":
                command += ["--replay_buffer_min_size=10"]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=_SMOKE_LIMIT_S)
            state = progress.read(run)
            if ended.returncode or state is None:
                raise SystemExit(f"{agent} ended with {ended.returncode}:\n{ended.stdout[-1500:]}")
            devices = state.devices
            if devices.count(args.expect) < 2:
                raise SystemExit(f"{agent}: {devices}; expected {args.expect} for both")
            rows.append((agent, env, state.frames, devices))
    report.print_table("Each agent trains", ["agent", "environment", "frames", "devices"], rows)


def parts(args: argparse.Namespace) -> None:
    """Inference by batch size and a training step, of each workload."""
    batches = _BATCHES[1:3] if args.quick else _BATCHES
    rows = []
    for name, dtype in args.runs:
        row: list[Any] = [name, dtype]
        for num_envs in batches:
            part = training.measure_part(_options(args, name, dtype, num_envs), "infer")
            row.append(part["us"] * num_envs / 1e3)
        part = training.measure_part(_options(args, name, dtype, jit="false"), "train")
        size = WORKLOADS[name].unrolls_per_step * WORKLOADS[name].unroll_length
        compiled = training.measure_part(_options(args, name, dtype, jit="true"), "train")
        ms = [us * size / WORKLOADS[name].samples / 1e3 for us in (part["us"], compiled["us"])]
        row += [size, *ms, part["us"]]
        rows.append(row)
    report.print_table(
        f"Alone, ms of {'the device' if part['on_accelerator'] else 'a core'}",
        [
            "workload",
            "type",
            *(f"inference, batch {size}" for size in batches),
            "transitions a step",
            "training step",
            "compiled (--jit)",
            "training, µs a transition",
        ],
        rows,
    )


def whole_systems(args: argparse.Namespace) -> None:
    """Learner and actors together."""
    rows = []
    for name, dtype in args.runs:
        cores = processor.cores()
        num_envs = max(WORKLOADS[name].num_envs, _ENVS_PER_CORE * cores)
        whole = training.measure_whole(_options(args, name, dtype, num_envs))
        per_step = 1e6 * WORKLOADS[name].frames_per_transition / whole["frames"]
        rows.append(
            (
                name,
                dtype,
                num_envs,
                whole["frames"] / whole["seconds"],
                per_step * whole["learner_cpu_s"],
                per_step * whole["actors_cpu_s"],
                whole["mean_inference_batch"],
            )
        )
    report.print_table(
        "The whole system",
        [
            "workload",
            "type",
            "environments",
            "frames/s",
            "learner, core-µs a step",
            "actors, core-µs a step",
            "mean batch",
        ],
        rows,
    )


def deepmind_lab(args: argparse.Namespace) -> None:
    """The paper's network, with actors that cost little."""
    sys.argv[1:] = ["--load=dmlab", f"--seconds={args.seconds}", "--flag=compute_dtype=bfloat16"]
    actors, warmup = (4, 5) if args.quick else (16 * processor.cores(), 20)
    sys.argv += [f"--actors={actors}", "--envs_per_actor=4", f"--warmup={warmup}"]
    options = load.parse()
    load.needs_descriptors(options.actors)
    with tempfile.TemporaryDirectory(prefix="seed_rl_") as folder:
        results = load.run(options, Path(folder))
    steps = results["steps_per_s"]
    report.print_table(
        f"{LOADS['dmlab'].about}; {actors} actors of 4 environments, four frames a step",
        [
            "frames/s",
            "trained on, frames/s",
            "mean batch",
            "inference, ms",
            "learner, core-µs a step",
        ],
        [
            (
                results["frames_per_s"],
                results["trained_frames_per_s"],
                results["mean_batch"],
                results["run_ms"],
                results["learner_us_per_step"],
            )
        ],
    )
    busy = steps * results["learner_us_per_step"] / 1e6
    problems = ", ".join(results["problems"]) or "no errors"
    print(f"The learner's process used {busy:.1f} cores; {problems}.\n")


def _options(
    args: argparse.Namespace,
    workload: str,
    dtype: str,
    num_envs: int | None = None,
    jit: str = "auto",
) -> argparse.Namespace:
    """The options of `benchmarks.training`."""
    return argparse.Namespace(
        workload=workload,
        compute_dtype=dtype,
        jit=jit,
        num_envs=num_envs,
        actors=processor.cores(),
        seconds=args.seconds,
        warmup=10.0,
        part_seconds=args.part_seconds,
    )


if __name__ == "__main__":
    main()
