"""Measures an actor: memory, time to the first step, time per step.

    python -m benchmarks.actor [--json=FILE] [--seconds=S] [--rounds=N] [--envs=N]
        [--inference_ms=T] [--family=atari|dmlab] [--game=GAME]

*actor* is the real program, `python -m seed_rl.FAMILY.vtrace_main --run_mode=actor` with N
environments, which gets its actions from the native op in another process, which answers at once;
*2 groups* is the same with `--env_groups=2`. *environment layer* steps what an actor steps, in a
bare loop. They are compared to *libraries alone*, a process that imports numpy, grpcio and the
engine and just steps the same environments with the same action, and to a process that just imports
TensorFlow. `--family=dmlab` needs the engine of DeepMind Lab.

Memory is measured after some seconds of steady state, in MiB: RSS (including shared pages, such as
those of shared libraries) and PSS (shared pages divided among the processes that share them). The
first step is the time from starting the process to the end of its environments' first step; for the
actor, until the server has received the call that reports it. Figures are medians over the rounds.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import processes, report

_IMPORTS = """
import sys, time
import grpc, numpy
n, game = int(sys.argv[1]), sys.argv[3]
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


@dataclasses.dataclass(frozen=True)
class Family:
    """What an actor steps.

    Attributes:
      engine: the package that simulates.
      game: the environment, by default.
      frame: shape of an observation, <uint8>.
      flags: of the actor, besides the game.
      bare: Python that makes `games`, n environments of `game`, without an environment layer.
      layer: Python that makes them as an actor does.
    """

    engine: str
    game: str
    frame: tuple[int, ...]
    flags: tuple[str, ...]
    bare: str
    layer: str


FAMILIES = {
    "atari": Family(
        "ale_py",
        "Pong",
        (84, 84, 1),
        (),
        """
from seed_rl.atari.games import available, rom_name
games = ale_py.AtariVectorEnv(
    rom_name(game, available()), n, num_threads=1, stack_num=1, reward_clipping=False,
    full_action_space=True,
)
games.reset()
""",
        """
from seed_rl.atari import env
games = env.create_batch(numpy.arange(n), env.AtariConfig(game=game))
games.reset(seed=None)
""",
    ),
    "dmlab": Family(
        "deepmind_lab",
        "tests/empty_room_test",
        (72, 96, 3),
        ("--noinstructions",),
        """
from seed_rl.dmlab.games import engine_name

class Games:
    def __init__(self):
        settings = {"width": "96", "height": "72", "logLevel": "ERROR"}
        self.labs = [
            deepmind_lab.Lab(engine_name(game), ["RGB_INTERLEAVED"], settings) for _ in range(n)
        ]
        for lab in self.labs:
            lab.reset()
        self.forward = numpy.zeros(len(self.labs[0].action_spec()), numpy.intc)
        self.forward[3] = 1

    def step(self, actions):
        for lab in self.labs:
            lab.step(self.forward, num_steps=4)
            if not lab.is_running():
                lab.reset()
            lab.observations()

games = Games()
""",
        """
from seed_rl.common.acting.batched_env import BatchedEnvironment
from seed_rl.dmlab import env
config = env.DmlabConfig(game=game, instructions=False)
games = BatchedEnvironment(env.create_environment, n, 0, config)
games.reset()
""",
    ),
}
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
    parser.add_argument("--family", choices=FAMILIES, default="atari", help="(%(default)s)")
    parser.add_argument("--game", help="environment (Pong, or an empty room of DeepMind Lab)")
    options = parser.parse_args()
    family, envs, seconds = FAMILIES[options.family], options.envs, options.seconds
    if importlib.util.find_spec(family.engine) is None:
        parser.error(
            f"{family.engine} is not installed: see docs/environments/{options.family}.md."
        )
    game = options.game or family.game
    program = [f"seed_rl.{options.family}.vtrace_main", f"--game={game}", *family.flags]
    with tempfile.TemporaryDirectory(prefix="seed_rl_") as folder:
        address = f"unix:{folder}/learner"
        with processes.Worker(
            "benchmarks.actor", "serve", options.family, address, str(options.inference_ms)
        ) as server:
            server.wait_ready()
            contestants: dict[str, Callable[[], Figures]] = {
                "actor": lambda: _actor(program, server, address, envs, seconds),
                "actor, 2 groups": lambda: _actor(program, server, address, envs, seconds, 2),
                "environment layer": lambda: _alone(family, family.layer, game, envs, seconds),
                "libraries alone": lambda: _alone(family, family.bare, game, envs, seconds),
                "import tensorflow": _tensorflow,
            }
            if envs % 2:
                del contestants["actor, 2 groups"]
            rounds = report.interleave(contestants, options.rounds)
    medians = {
        name: {key: statistics.median(f[key] for f in figures) for key in figures[0]}
        for name, figures in rounds.items()
    }
    keys = ("rss_mb", "pss_mb", "first_step_s", "steps_per_s")
    report.print_table(
        f"An actor with {envs} environments of {game}",
        ("process", "RSS (MiB)", "PSS (MiB)", "first step (s)", "steps/s"),
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
            "game": game,
            "envs": envs,
            "speed": speeds,
            "libraries_alone": medians["libraries alone"],
            "import_tensorflow": medians["import tensorflow"],
        },
    )


def _actor(
    program: Sequence[str],
    server: processes.Worker,
    address: str,
    envs: int,
    seconds: float,
    groups: int = 1,
) -> Figures:
    """Measures the real program against the server."""
    server.send()  # Clears the calls of earlier actors.
    server.receive()
    began = time.monotonic()
    command = [sys.executable, "-m", *program, "--run_mode=actor"]
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


def _alone(family: Family, code: str, game: str, envs: int, seconds: float) -> Figures:
    """Measures environments that are stepped in a loop, without a learner."""
    began = time.monotonic()
    command = [sys.executable, "-c", _IMPORTS + f"import {family.engine}\n{code}{_STEPPING}"]
    command += [str(envs), str(seconds), game]
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
    lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    kib = {name: int(rest.split()[0]) for name, rest in (line.split(":") for line in lines)}
    return {"rss_mb": kib["Rss"] / 1024, "pss_mb": kib["Pss"] / 1024}


def _serve(family: Family, address: str, inference_ms: float) -> None:
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
                rows(tf.uint8, *family.frame),
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
        _serve(FAMILIES[sys.argv[2]], sys.argv[3], float(sys.argv[4]))
    else:
        main()
