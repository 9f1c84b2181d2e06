"""Measures an actor: memory, time to the first step, time per step.

    python -m benchmarks.actor [--json=FILE] [--seconds=S] [--rounds=N] [--envs=N]
        [--inference_ms=T]

*actor* is the real program, `python -m seed_rl.atari.vtrace_main --run_mode=actor` with N games of
Pong, which gets its actions from the native op in another process, which answers at once; *actor, 2
groups* is the same with `--env_groups=2`. *environment layer* steps what an actor steps, in a bare
loop. They are compared to *libraries alone*, a process that imports numpy, grpcio and ALE and just
steps the same games with the same action, and to a process that just imports TensorFlow.

Memory is measured after some seconds of steady state, in MiB, with shared pages. The first step is
the time from starting the process to the end of its environments' first step; for the actor, until
the server has received the call that reports it. Figures are medians over the rounds.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from benchmarks import processes, report

_IMPORTS = """
import sys, time
import ale_py, grpc, numpy
n = int(sys.argv[1])
"""
_STEPPING = """
actions = numpy.zeros(n, numpy.int64)
games.step(actions)
print(time.monotonic(), flush=True)
steps, began = 0, time.monotonic()
while time.monotonic() < began + float(sys.argv[2]):
    games.step(actions)
    steps += n
print(steps / (time.monotonic() - began), flush=True)
sys.stdin.read()
"""


_BARE = """
games = ale_py.AtariVectorEnv(
    "pong", n, num_threads=1, stack_num=1, reward_clipping=False, full_action_space=True
)
games.reset()
"""
_LAYER = """
from seed_rl.atari import environment
games = environment.create_batch(numpy.arange(n), environment.AtariConfig(game="Pong"))
games.reset(seed=None)
"""
_TENSORFLOW = """
import sys, time
import tensorflow
print(time.monotonic(), flush=True)
sys.stdin.read()
"""

Figures = dict[str, float]


def main() -> None:
    """Runs the benchmark."""
    parser = report.parser(__doc__ or "", seconds=5)
    parser.add_argument("--envs", type=int, default=4, help="environments (%(default)s)")
    parser.add_argument(
        "--inference_ms", type=float, default=0, help="how long inference takes (%(default)s)"
    )
    options = parser.parse_args()
    envs, seconds = options.envs, options.seconds
    with tempfile.TemporaryDirectory(prefix="seed_rl_") as folder:
        address = f"unix:{folder}/learner"
        with processes.Worker(
            "benchmarks.actor", "serve", address, str(options.inference_ms)
        ) as server:
            server.wait_ready()
            contestants: dict[str, Callable[[], Figures]] = {
                "actor": lambda: _actor(server, address, envs, seconds),
                "actor, 2 groups": lambda: _actor(server, address, envs, seconds, 2),
                "environment layer": lambda: _alone(_LAYER, envs, seconds),
                "libraries alone": lambda: _alone(_BARE, envs, seconds),
                "import tensorflow": _tensorflow,
            }
            if envs % 2:
                del contestants["actor, 2 groups"]
            rounds = report.interleave(contestants, options.rounds)
    medians = {
        name: {key: statistics.median(f[key] for f in figures) for key in figures[0]}
        for name, figures in rounds.items()
    }
    keys = ("rss_mb", "first_step_s", "steps_per_s")
    report.print_table(
        f"An actor with {envs} games of Pong",
        ("process", "memory (MiB)", "first step (s)", "steps/s"),
        [(name, *(f.get(key, float("nan")) for key in keys)) for name, f in medians.items()],
    )
    bare = rounds["libraries alone"]
    for key in ("rss_mb", "first_step_s"):
        for other in ("libraries alone", "import tensorflow"):
            ratio = report.median_ratio(
                [f[key] for f in rounds["actor"]], [f[key] for f in rounds[other]]
            )
            print(f"{key}: {ratio:.2f} of {other}")
    speeds = {}
    for name in [n for n in rounds if n not in ("libraries alone", "import tensorflow")]:
        rates = [f["steps_per_s"] for f in rounds[name]], [f["steps_per_s"] for f in bare]
        speeds[name] = report.median_ratio(*rates)
        overhead_us = statistics.median(1e6 / a - 1e6 / b for a, b in zip(*rates, strict=True))
        print(
            f"{name}: {speeds[name]:.2f} of the steps/s of libraries alone; loop, call and waiting "
            f"for the reply take {overhead_us:.0f} us per environment step"
        )
    report.write_json(
        options.json,
        {
            **medians["actor"],
            "envs": envs,
            "speed": speeds,
            "libraries_alone": medians["libraries alone"],
            "import_tensorflow": medians["import tensorflow"],
        },
    )


def _actor(
    server: processes.Worker, address: str, envs: int, seconds: float, groups: int = 1
) -> Figures:
    """Measures the real program against the server."""
    server.send()  # Clears the calls of earlier actors.
    server.receive()
    began = time.monotonic()
    command = [sys.executable, "-m", "seed_rl.atari.vtrace_main", "--game=Pong", "--run_mode=actor"]
    options = [f"--server_address={address}", f"--env_batch_size={envs}"]
    options.append(f"--env_groups={groups}")
    with processes.Program([*command, *options]) as actor:
        second_call = None
        while second_call is None:
            actor.check()
            server.send(second_call=True)
            second_call = server.receive()
        first_step = second_call - began
        time.sleep(1.0)
        server.send()
        server.receive()
        mark = time.monotonic()
        time.sleep(seconds)
        server.send()
        rate = server.receive() * envs / groups / (time.monotonic() - mark)
        return {**_memory(actor.pid), "first_step_s": first_step, "steps_per_s": rate}


def _alone(code: str, envs: int, seconds: float) -> Figures:
    """Measures environments that are stepped in a loop, without a learner."""
    began = time.monotonic()
    command = [sys.executable, "-c", _IMPORTS + code + _STEPPING, str(envs), str(seconds)]
    with processes.Program(command) as program:
        first_step = float(program.wait_ready()) - began
        rate = float(program.wait_ready())
        return {**_memory(program.pid), "first_step_s": first_step, "steps_per_s": rate}


def _tensorflow() -> Figures:
    """Measures importing TensorFlow alone."""
    began = time.monotonic()
    with processes.Program([sys.executable, "-c", _TENSORFLOW]) as program:
        return {"first_step_s": float(program.wait_ready()) - began, **_memory(program.pid)}


def _memory(pid: int) -> Figures:
    return {"rss_mb": processes.memory_mib(pid)}


def _serve(address: str, inference_ms: float) -> None:
    """The learner's side: the native op with a trivial inference function, or one that waits."""
    import tensorflow as tf

    from seed_rl.common.types import EnvOutput
    from seed_rl.grpc import ops

    def rows(dtype: Any, *shape: int) -> tf.TensorSpec:
        return tf.TensorSpec([None, *shape], dtype)

    @tf.function(
        input_signature=[
            rows(tf.int32),
            rows(tf.int64),
            EnvOutput(
                rows(tf.float32),
                rows(tf.bool),
                rows(tf.uint8, 84, 84, 1),
                rows(tf.bool),
                rows(tf.int32),
            ),
            rows(tf.float32),
        ]
    )
    def inference(env_ids: Any, run_ids: Any, env_outputs: Any, raw_rewards: Any) -> Any:
        del run_ids, env_outputs, raw_rewards
        if inference_ms:
            tf.numpy_function(lambda: time.sleep(inference_ms / 1000), [], [])
        return tf.zeros_like(env_ids, tf.int64)

    def calls() -> int:
        return int(server.stats()["functions"]["inference"]["calls"])

    seen = 0

    def run(second_call: bool = False) -> float | None:
        """Returns the number of calls since the last command; or the time of the second call, None
        if there is none for half a second.
        """
        nonlocal seen
        if second_call:
            for _ in range(500):
                if calls() >= seen + 2:
                    return time.monotonic()
                time.sleep(0.001)
            return None
        count = calls() - seen
        seen += count
        return count

    server = ops.Server([address])
    server.bind(inference)
    server.start()
    processes.serve_commands(run)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        _serve(sys.argv[2], float(sys.argv[3]))
    else:
        main()
