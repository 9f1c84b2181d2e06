"""What an accelerator does for a learner: one Markdown report.

    scripts/check_gpu.sh [--expect=cpu] [--quick] [--only=PART]

1. Each agent trains for some steps, with actors, and must do so on the device.
2. Inference by batch size, and training steps, alone. On an accelerator in wall time, from the call
   to the actions on the host, and over a queue of training steps; on a CPU in a core's time.
3. The whole system: learner and actors as users start them, an actor per core.
4. The paper's network for DeepMind Lab, in bfloat16, with actors that send recorded random frames.

The exit code is 1 if a part failed; the others are reported all the same.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks import load, report, training, training_parts
from benchmarks.workloads import WORKLOADS
from seed_rl.common.run_files import progress
from seed_rl.common.system import processor

_AGENTS = {
    "vtrace": "CartPole-v1",
    "r2d2": "CartPole-v1",
    "ppo": "CartPole-v1",
    "pqn": "CartPole-v1",
    "sac": "Pendulum-v1",
}
_SMOKE_FRAMES = 2000
_SMOKE_LIMIT_S = 180
_BATCHES = (1, 16, 64, 256, 1024)
_ENVS_PER_CORE = 16
_SPAWN = multiprocessing.get_context("spawn")  # TensorFlow does not survive a fork.
_RUNS = (
    ("W1", "float32"),
    ("W1", "bfloat16"),
    ("W2", "bfloat16"),
    ("W3", "bfloat16"),
    ("W4", "float32"),
    ("W6", "bfloat16"),
    ("W7", "bfloat16"),
)


def main() -> None:
    """Runs all parts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--expect", default="gpu", help="device that must do the work: gpu, cpu, tpu"
    )
    parser.add_argument("--quick", action="store_true", help="a few seconds each, to try it out")
    chosen = {part.__name__: part for part in (agents, parts, whole_systems, deepmind_lab)}
    parser.add_argument(
        "--only", action="append", choices=chosen, help="run this part; may be repeated"
    )
    parser.add_argument(
        "--workload",
        action="append",
        choices=sorted(dict(_RUNS)),
        help="measure this one, of those of parts and whole_systems; may be repeated",
    )
    args = parser.parse_args()
    args.part_seconds, args.seconds = (1.0, 4.0) if args.quick else (4.0, 15.0)
    args.warmup = 5.0 if args.quick else 10.0
    args.runs = [_RUNS[0], _RUNS[4]] if args.quick else _RUNS
    if args.workload:
        args.runs = [run for run in _RUNS if run[0] in args.workload]
    _require(args.expect)  # With TensorFlow's warnings, which say what is missing.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    failed: list[str] = []
    _print_machine()
    for name in args.only or chosen:
        with _reported(name, failed):
            chosen[name](args)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


@contextlib.contextmanager
def _reported(name: str, failed: list[str]) -> Iterator[None]:
    """Prints what goes wrong, and continues."""
    _say(name)
    try:
        yield
    except (Exception, SystemExit):
        failed.append(name)
        print(f"**{name} failed:**\n\n```\n{traceback.format_exc().strip()[-1500:]}\n```\n")
    sys.stdout.flush()


def _require(expect: str) -> None:
    with concurrent.futures.ProcessPoolExecutor(1, _SPAWN) as pool:
        if pool.submit(training_parts.on_accelerator).result() != (expect != "cpu"):
            sys.exit(f"error: TensorFlow does not compute on the {expect} here; see --expect")


def _say(*what: object) -> None:
    """Shows progress; what it has measured is not lost if it is stopped before its table."""
    print("accelerator:", *what, file=sys.stderr, flush=True)


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
    """Trains with all agents at once, and checks the devices that each reports."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        rows = list(pool.map(lambda agent: _train(agent, args.expect), _AGENTS))
    report.print_table("Each agent trains", ["agent", "environment", "frames", "devices"], rows)


def _train(agent: str, expect: str) -> tuple[str, str, int, str]:
    """Trains as a user would: agent, environment, frames and devices."""
    with tempfile.TemporaryDirectory(prefix="seed_rl_") as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-m", "seed_rl.command", "train", agent, _AGENTS[agent]]
        command += ["--actors=1", f"--logdir={run}"]
        command += [f"--total_environment_frames={_SMOKE_FRAMES}"]
        if agent == "r2d2":
            command += ["--replay_buffer_min_size=10"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_SMOKE_LIMIT_S)
        state = progress.read(run)
    if ended.returncode or state is None:
        output = (ended.stdout + ended.stderr)[-1500:]
        raise SystemExit(f"{agent} ended with {ended.returncode}:\n{output}")
    if state.devices.count(expect) < 2:
        raise SystemExit(f"{agent}: {state.devices}; expected {expect} for both")
    return agent, _AGENTS[agent], state.frames, state.devices


def parts(args: argparse.Namespace) -> None:
    """Inference by batch size and a training step, of each workload."""
    batches = _BATCHES[1::2] if args.quick else _BATCHES
    rows = []
    for name, dtype in args.runs:
        workload = WORKLOADS[name]
        size = workload.unrolls_per_step * workload.unroll_length
        infer = [_options(args, name, dtype, num_envs) for num_envs in batches]
        infer_ms = _ms(training_parts.measure_infer, infer)
        train = [_options(args, name, dtype, jit=jit) for jit in ("false", "true")]
        train_ms = _ms(training_parts.measure_train, train)
        rows.append(
            [
                name,
                dtype,
                *(ms * num_envs for ms, num_envs in zip(infer_ms, batches, strict=True)),
                size,
                *(ms * size for ms in train_ms),
            ]
        )
        _say(*rows[-1])
    report.print_table(
        f"Alone, ms of {'a core' if args.expect == 'cpu' else 'the device'}",
        [
            "workload",
            "type",
            *(f"inference, batch {size}" for size in batches),
            "transitions a step",
            "training step",
            "compiled (--jit)",
        ],
        rows,
    )


def _ms(
    measure: Callable[[argparse.Namespace], float], options: Sequence[argparse.Namespace]
) -> list[float]:
    """Milliseconds per transition by each of the options, measured in a process of their own."""
    with concurrent.futures.ProcessPoolExecutor(1, _SPAWN) as pool:
        return [us / 1e3 for us in pool.map(measure, options)]


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
        _say(*rows[-1])
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
    actors, warmup = (4, 5) if args.quick else (16 * processor.cores(), 20)
    options = load.parse(
        [
            *("--load=dmlab", f"--actors={actors}", "--envs_per_actor=4", f"--warmup={warmup}"),
            *(f"--seconds={args.seconds}", "--flag=compute_dtype=bfloat16"),
        ]
    )
    load.needs_descriptors(options.actors)
    with tempfile.TemporaryDirectory(prefix="seed_rl_") as folder:
        load.print_results(options, load.run(options, Path(folder)))


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
        warmup=args.warmup,
        part_seconds=args.part_seconds,
    )


if __name__ == "__main__":
    main()
