"""How much of the machine's possible training throughput the whole system reaches.

    python -m benchmarks.training [--workload=W1] [--compute_dtype=float32] [--json=FILE]

The parts of the work are measured alone, each in a process of its own, as CPU time per
transition: stepping the environments, inferring a batch, training. A machine that did nothing
else, and never waited, would make

    ideal = cores / (t_env + t_infer + t_train)

transitions per second. Then learner and actors run as users start them, and what they reach over
the ideal is the efficiency. The rest is accounted for from the CPU time that the processes took
and from the time that cores were idle.
"""

from __future__ import annotations

import argparse
import dataclasses
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
from seed_rl.common import progress

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass(frozen=True)
class Workload:
    """What is trained, as flags of `seed_rl.atari.vtrace_main`."""

    about: str
    flags: dict[str, Any]


WORKLOADS = {
    "W1": Workload(
        "Pong, Nature CNN, unroll 20, batch 32, 16 environments",
        {"game": "Pong", "torso": "nature", "lstm_size": 0, "stack_size": 4},
    ),
    "W2": Workload(
        "Pong, IMPALA deep network with LSTM 256, unroll 20, batch 32, 16 environments",
        {"game": "Pong", "torso": "impala_deep", "lstm_size": 256, "stack_size": 4},
    ),
}
NUM_ENVS, UNROLL_LENGTH, BATCH_SIZE, REPEATS = 16, 20, 32, 4


def main() -> None:
    """Runs the benchmark, or one part of it in a child process."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--workload", choices=sorted(WORKLOADS), default="W1")
    parser.add_argument("--compute_dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--actors", type=int, default=4, help="actor processes, of 16/N games")
    parser.add_argument("--seconds", type=float, default=60, help="of the whole system")
    parser.add_argument("--warmup", type=float, default=20, help="seconds not counted before")
    parser.add_argument("--json", help="file for the results")
    parser.add_argument("--part", choices=sorted(PARTS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part:
        print(json.dumps(PARTS[args.part](args)))
        return
    results = run(args)
    report.print_table(
        f"{args.workload} ({args.compute_dtype}): {WORKLOADS[args.workload].about}",
        ["part", "core-µs per transition", "share of the machine"],
        _rows(results),
    )
    print(
        f"\n{results['frames_per_s']:,.0f} of ideal {results['ideal_frames_per_s']:,.0f} "
        f"environment frames/s: efficiency {results['efficiency']:.2f}; "
        f"mean inference batch {results['mean_inference_batch']:.1f}"
    )
    report.write_json(args.json, results)


def run(args: argparse.Namespace) -> dict[str, float]:
    """All parts alone, then the whole."""
    cores = len(os.sched_getaffinity(0))
    parts = {name: _child(args, name) for name in PARTS}
    alone = sum(parts.values())
    whole = measure_whole(args)
    transitions = whole["transitions"]
    per_transition = 1e6 / transitions
    frames_per_s = transitions * REPEATS / whole["seconds"]
    ideal = cores * 1e6 / alone * REPEATS
    machine = cores * whole["seconds"] * per_transition
    busy = (whole["learner_cpu_s"] + whole["actors_cpu_s"]) * per_transition
    return {
        "efficiency": frames_per_s / ideal,
        "frames_per_s": frames_per_s,
        "ideal_frames_per_s": ideal,
        **{f"{name}_us": value for name, value in parts.items()},
        "machine_us": machine,
        "actors_us": whole["actors_cpu_s"] * per_transition,
        "learner_us": whole["learner_cpu_s"] * per_transition,
        "idle_us": machine - busy,
        "mean_inference_batch": whole["mean_inference_batch"],
        "cores": cores,
    }


def _rows(r: dict[str, float]) -> list[list[str]]:
    rows = [
        ("environment alone", r["env_us"]),
        ("inference alone (batch 16)", r["infer_us"]),
        ("training alone (batch 640)", r["train_us"]),
        ("all actors, running together", r["actors_us"]),
        ("learner, running together", r["learner_us"]),
        (
            "  of which beyond inference and training",
            r["learner_us"] - r["infer_us"] - r["train_us"],
        ),
        ("other processes and idle cores", r["idle_us"]),
        ("the machine's whole time", r["machine_us"]),
    ]
    return [[name, f"{value:.0f}", f"{value / r['machine_us']:.0%}"] for name, value in rows]


def _child(args: argparse.Namespace, part: str) -> float:
    """One part, alone on the machine; core-microseconds per transition."""
    command = [sys.executable, "-m", "benchmarks.training", f"--part={part}"]
    command += [f"--workload={args.workload}", f"--compute_dtype={args.compute_dtype}"]
    command += [f"--actors={args.actors}"]
    output = subprocess.run(command, check=True, capture_output=True, text=True, env=_environment())
    return float(json.loads(output.stdout.splitlines()[-1]))


def measure_env(args: argparse.Namespace) -> float:
    """Stepping the games of one actor."""
    import numpy as np

    from seed_rl.atari import env

    config = env.AtariConfig(game=WORKLOADS[args.workload].flags["game"])
    per_actor = NUM_ENVS // args.actors
    environment = env.create_vector_environment(np.arange(per_actor), config)
    environment.reset(seed=1)
    generator = np.random.default_rng(1)
    actions = generator.integers(0, environment.action_space.n, [10_000, per_actor])
    step = iter(range(10_000_000))
    return _cpu_us(lambda: environment.step(actions[next(step) % 10_000])) / per_actor


def measure_infer(args: argparse.Namespace) -> float:
    """The network's part of inference, for a batch of all environments."""
    import tensorflow as tf

    algorithm, specs, _ = _algorithm(args)
    prev_actions, outputs = tf.nest.map_structure(
        lambda s: tf.zeros([NUM_ENVS, *s.shape], s.dtype), (specs.action, specs.env_output)
    )
    state = algorithm.agent.initial_state(NUM_ENVS)
    env_ids = tf.range(NUM_ENVS)

    @tf.function(autograph=False)
    def act() -> Any:
        return algorithm.act(algorithm.agent, env_ids, prev_actions, outputs, state).action

    return _cpu_us(act) / NUM_ENVS


def measure_train(args: argparse.Namespace) -> float:
    """A training step on random unrolls."""
    import tensorflow as tf

    from seed_rl.common.algorithm import Unroll
    from seed_rl.common.optimizer import OptimizerConfig, create_optimizer
    from seed_rl.common.training import TrainingStep

    algorithm, specs, strategy = _algorithm(args)
    acted = algorithm.act(
        algorithm.agent,
        tf.range(BATCH_SIZE),
        *tf.nest.map_structure(
            lambda s: tf.zeros([BATCH_SIZE, *s.shape], s.dtype), (specs.action, specs.env_output)
        ),
        algorithm.agent.initial_state(BATCH_SIZE),
    )
    steps = tf.nest.map_structure(
        lambda s: tf.zeros([UNROLL_LENGTH + 1, BATCH_SIZE, *s.shape], s.dtype),
        (specs.action, specs.env_output),
    )
    outputs = tf.nest.map_structure(
        lambda t: tf.repeat(t[tf.newaxis], UNROLL_LENGTH + 1, 0), acted.agent_outputs
    )
    batch = Unroll(algorithm.agent.initial_state(BATCH_SIZE), steps[0], steps[1], outputs)
    with strategy.scope():
        optimizer, _ = create_optimizer(OptimizerConfig(), 1000)
    training = TrainingStep(algorithm, optimizer, strategy, OptimizerConfig().clip_norm)
    dataset = strategy.distribute_datasets_from_function(
        lambda _: tf.data.Dataset.from_tensors(batch).repeat()
    )
    iterator = iter(dataset)
    return _cpu_us(lambda: training(iterator)) / (BATCH_SIZE * UNROLL_LENGTH)


PARTS = {"env": measure_env, "infer": measure_infer, "train": measure_train}


def _algorithm(args: argparse.Namespace) -> Any:
    """The algorithm of the workload, as the learner makes it."""
    from seed_rl.agents.vtrace.config import VTraceConfig
    from seed_rl.agents.vtrace.learner import VTrace
    from seed_rl.agents.vtrace.network_config import ConvNetworkConfig
    from seed_rl.agents.vtrace.network_factory import create_network
    from seed_rl.atari import env
    from seed_rl.common import devices, env_specs, inference
    from seed_rl.common.device_config import DeviceConfig
    from seed_rl.common.parametric_distribution import get_parametric_distribution_for_action_space

    flags = WORKLOADS[args.workload].flags
    network = ConvNetworkConfig(
        torso=flags["torso"],
        lstm_size=flags["lstm_size"],
        stack_size=flags["stack_size"],
        compute_dtype=args.compute_dtype,
    )
    strategy = devices.make_devices(DeviceConfig()).training_strategy
    spaces = env_specs.probe_spaces(env.create_environment, env.AtariConfig(game=flags["game"]))
    distribution = get_parametric_distribution_for_action_space(spaces[1])
    specs = env_specs.specs(*spaces)
    with strategy.scope():
        algorithm = VTrace(
            VTraceConfig(),
            lambda: create_network(spaces[0], distribution, network),
            distribution,
            NUM_ENVS,
        )
        inference.initialize(algorithm, algorithm.agent, specs)
    return algorithm, specs, strategy


def _cpu_us(action: Any, seconds: float = 6.0) -> float:
    """CPU time of this process per call, in microseconds: median over half-second windows."""
    for _ in range(3):
        action()
    windows = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        calls, began, cpu = 0, time.monotonic(), time.process_time()
        while time.monotonic() - began < 0.5:
            action()
            calls += 1
        windows.append((time.process_time() - cpu) / calls * 1e6)
    return sorted(windows)[len(windows) // 2]


def measure_whole(args: argparse.Namespace) -> dict[str, float]:
    """Learner and actors as processes; what they did in a window of steady state."""
    with tempfile.TemporaryDirectory() as logdir:
        flags = dict(
            WORKLOADS[args.workload].flags,
            compute_dtype=args.compute_dtype,
            logdir=logdir,
            server_address=f"unix:{logdir}/learner.sock",
            num_envs=NUM_ENVS,
            env_batch_size=NUM_ENVS // args.actors,
            unroll_length=UNROLL_LENGTH,
            batch_size=BATCH_SIZE,
            save_model=False,
        )
        processes = [_start(flags, run_mode="learner")]
        processes += [_start(flags, run_mode="actor", task=i) for i in range(args.actors)]
        try:
            _wait_for_training(Path(logdir), processes[0])
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


def _start(flags: dict[str, Any], **more: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "seed_rl.atari.vtrace_main"]
    command += [f"--{name}={value}" for name, value in {**flags, **more}.items()]
    log = open(Path(flags["logdir"]) / f"{more['run_mode']}-{more.get('task', 0)}.log", "w")
    with log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=_environment())


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}


def _wait_for_training(logdir: Path, learner: subprocess.Popen[bytes]) -> None:
    while (state := progress.read(logdir)) is None or state.frames == 0:
        if learner.poll() is not None:
            sys.exit((logdir / "learner-0.log").read_text())
        time.sleep(0.2)


def _snapshot(logdir: Path, processes: list[subprocess.Popen[bytes]]) -> dict[str, float]:
    """Counters right after the learner wrote its progress, which counts whole training steps."""
    last = progress.read(logdir)
    while (state := progress.read(logdir)) is None or state == last:
        time.sleep(0.002)
    learner, *actors = [_cpu_seconds(process.pid) for process in processes]
    return {
        "seconds": state.time,
        "transitions": state.frames / REPEATS,
        "learner_cpu_s": learner,
        "actors_cpu_s": sum(actors),
        "mean_inference_batch": state.mean_inference_batch,
    }


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


if __name__ == "__main__":
    main()
