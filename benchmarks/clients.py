"""Measures clients against a served agent: how fast they step, and how long answers take.

    python -m benchmarks.clients [--json=FILE] [--seconds=S] [--rounds=N]

`seed-rl serve` serves a PPO agent (two dense layers of 64) for CartPole-v1 on this machine. *C++*
is `clients/cpp/examples/cartpole.cc`, whose environment takes 0.1 us a step; *Python* is the actor
of `seed_rl.gym`, with Gymnasium's CartPole. Each steps a batch of environments per call.

For the latencies, N clients in C++ with one environment each call without a pause, so each waits N
divided by the calls per second. Client and server share the machine's cores. Needs cmake, and the
packages of docs/clients.md.
"""

from __future__ import annotations

import contextlib
import functools
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from benchmarks import report
from seed_rl.grpc.numpy_client import Client

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_BATCHES = (1, 16, 256, 4096)
_CLIENTS = (1, 16, 256)
_WARM_UP_S = 2.0


def main() -> None:
    """Runs the benchmark."""
    options = report.parser(__doc__ or "", seconds=4).parse_args()
    cpp = [str(_build() / "cartpole")]
    python = [sys.executable, "-m", "seed_rl.gym.ppo_main", "--run_mode=actor"]
    python.append("--env_name=CartPole-v1")
    with tempfile.TemporaryDirectory(prefix="seed_rl_") as folder, contextlib.ExitStack() as stack:
        address = f"unix:{folder}/socket"
        logdir = _train(pathlib.Path(folder), address, cpp)
        serve = [sys.executable, "-m", "seed_rl.serve", str(logdir), f"--num_envs={max(_BATCHES)}"]
        serve += [f"--server_address={address}", "--refresh_s=0"]
        stack.enter_context(_started([serve]))
        client = stack.enter_context(Client(address))
        rate = functools.partial(_rate, client, address, options.seconds)
        contestants: dict[tuple[str, int], Callable[[], float]] = {}
        for size in _BATCHES:
            contestants["C++", size] = functools.partial(rate, [cpp], size)
            contestants["Python", size] = functools.partial(rate, [python], size)
        for count in _CLIENTS:
            contestants["latency", count] = functools.partial(rate, [cpp] * count, 1)
        rounds = report.interleave(contestants, options.rounds)
    medians = {key: statistics.median(rates) for key, rates in rounds.items()}
    ratios = {n: report.median_ratio(rounds["C++", n], rounds["Python", n]) for n in _BATCHES}
    report.print_table(
        "Steps/s of one client",
        ("environments", "C++", "Python", "C++ / Python"),
        [(n, medians["C++", n], medians["Python", n], ratios[n]) for n in _BATCHES],
    )
    latencies = {count: 1e6 * count / medians["latency", count] for count in _CLIENTS}
    report.print_table(
        "Round trip of a call",
        ("clients of one environment", "us", "calls/s"),
        [(n, latencies[n], medians["latency", n]) for n in _CLIENTS],
    )
    report.write_json(
        options.json,
        {
            "steps_per_s": {f"{name} {n}": rate for (name, n), rate in medians.items()},
            "cpp_over_python": ratios,
            "latency_us": latencies,
        },
    )


def _build() -> pathlib.Path:
    """Builds the client in C++; returns the folder."""
    folder = _ROOT / "build" / "cpp"
    for command in (
        ["cmake", "-S", str(_ROOT / "clients/cpp"), "-B", str(folder)],
        ["cmake", "--build", str(folder)],
    ):
        subprocess.run(command, check=True, capture_output=True)
    return folder


def _train(folder: pathlib.Path, address: str, client: Sequence[str]) -> pathlib.Path:
    """Trains for a moment; returns the run."""
    learner = [sys.executable, "-m", "seed_rl.external.ppo_main", "--run_mode=learner"]
    learner += ["--observations=float32[4]", "--actions=2 choices from 0", "--num_envs=16"]
    learner += ["--env_batch_size=16", f"--logdir={folder}/run", f"--server_address={address}"]
    learner.append("--total_environment_frames=512")
    actor = [*client, f"--server_address={address}", "--env_batch_size=16"]
    with _started([learner, actor]) as (process, _):
        if process.wait():
            raise SystemExit("error: the agent cannot be trained")
    return folder / "run"


@contextlib.contextmanager
def _started(commands: Sequence[Sequence[str]]):  # type: ignore[no-untyped-def]
    processes = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for command in commands]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _rate(
    client: Client, address: str, seconds: float, commands: Sequence[Sequence[str]], size: int
) -> float:
    """Environment steps per second of clients with `size` environments each."""
    flags = [f"--server_address={address}", f"--env_batch_size={size}"]
    tasks = enumerate(commands)
    with _started([[*command, *flags, f"--task={task}"] for task, command in tasks]):
        before, deadline = _rows(client), time.monotonic() + 60
        while _rows(client) == before:
            if time.monotonic() > deadline:
                raise SystemExit("error: no client calls")
            time.sleep(0.05)
        time.sleep(_WARM_UP_S)
        began, before = time.monotonic(), _rows(client)
        time.sleep(seconds)
        return (_rows(client) - before) / (time.monotonic() - began)


def _rows(client: Client) -> int:
    return int(client.stats()["functions"]["inference"]["rows"])


if __name__ == "__main__":
    main()
