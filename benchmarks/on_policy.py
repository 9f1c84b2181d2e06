"""Compares the throughput of the on-policy agent with stable-baselines3's PPO on the same work.

    python -m venv VENV
    VENV/bin/pip install torch stable-baselines3 "gymnasium[mujoco]" "mujoco==4.0.0"
    python -m benchmarks.on_policy --contestants_python=VENV/bin/python [--json=FILE]

The work is workload W4 of `benchmarks.training`: HalfCheetah-v5 in 256 environments, training steps
of 32 steps of each, 10 epochs of minibatches of 512, policy and value networks of 2 x 64. *seed_rl*
is this package as users start it: a learner and 8 actors of 32 environments. *stable-baselines3*
steps its environments either in its own process or in a process for each, with one or two threads
for PyTorch; of these variants, the one with the best median counts. Both normalize observations;
theirs normalizes rewards, ours value targets.

All run in turns, in interleaved rounds. Figures are environment frames/s, medians over the rounds;
a ratio is the median of the rounds' ratios. How far this package is from the machine's ideal, and
where the rest goes, is the question of `python -m benchmarks.training --workload=W4`.
"""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import itertools
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence

from benchmarks import on_policy_contestants, report, training
from benchmarks.workloads import WORKLOADS

WORKLOAD = "W4"
OURS = "seed_rl"
THEIRS = "stable-baselines3"

_MODULE = "benchmarks.on_policy_contestants"
_FOLDER = pathlib.Path(__file__).resolve().parent.parent
_START_TIMEOUT_S = 600
_INSTALL = """Make an environment for it, apart from this project's:
  python -m venv VENV
  VENV/bin/pip install torch stable-baselines3 "gymnasium[mujoco]" "mujoco=={mujoco}"
and pass --contestants_python=VENV/bin/python."""
_VERSIONS = """
import importlib.metadata, json, torch, stable_baselines3, gymnasium, mujoco
names = ("torch", "stable-baselines3", "gymnasium", "mujoco")
print(json.dumps({name: importlib.metadata.version(name) for name in names}))
"""


def main() -> None:
    """Runs the benchmark."""
    parser = report.parser(__doc__ or "", seconds=30)
    parser.add_argument("--contestants_python", metavar="PATH", help=f"Python with {THEIRS}")
    parser.add_argument("--warmup", type=float, default=20, help="seconds before measuring ours")
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1, 2], help="of PyTorch, to be tried"
    )
    args = parser.parse_args()
    args.contestants_python, versions = contestants_python(args.contestants_python)
    measured = report.interleave(_contestants(args), args.rounds)
    results = summary(measured)
    report.print_table(
        f"{WORKLOADS[WORKLOAD].about}; {args.rounds} x {args.seconds:g} s each",
        ("contestant", "best variant", "frames/s", "seed_rl / this"),
        [(name, *row.values()) for name, row in results.items()],
    )
    variants = {" ".join(key): statistics.median(values) for key, values in measured.items()}
    report.print_table("All variants", ("variant", "frames/s"), list(variants.items()))
    ratios = {f"over_{name}": row["ratio"] for name, row in results.items() if name != OURS}
    report.write_json(
        args.json,
        {**ratios, "contestants": results, "variants": variants, "versions": versions},
    )


def contestants_python(path: str | None) -> tuple[str, dict[str, str]]:
    """Checks the Python that runs the contestants.

    Args:
      path: as given by the user.

    Returns:
      (its absolute path, versions of the packages that matter).

    Raises:
      SystemExit: it cannot run them; the message says how to make one that can.
    """
    mujoco = importlib.metadata.version("mujoco")
    install = _INSTALL.format(mujoco=mujoco)
    if path is None:
        raise SystemExit(f"error: --contestants_python is missing. {install}")
    python = shutil.which(path)
    if python is None:
        raise SystemExit(f"error: --contestants_python={path} is no program. {install}")
    # Absolute, because it is started in another folder; not resolved, which would leave the venv.
    python = os.path.abspath(python)
    checked = subprocess.run([python, "-c", _VERSIONS], capture_output=True, text=True)
    if checked.returncode:
        reason = checked.stderr.strip().rpartition("\n")[2]
        raise SystemExit(f"error: {path} cannot run the contestants: {reason}. {install}")
    versions: dict[str, str] = json.loads(checked.stdout)
    if versions["mujoco"] != mujoco:
        raise SystemExit(
            f"error: {path} has MuJoCo {versions['mujoco']}, this package's actors {mujoco}, so "
            f"their environments would not be the same work. {install}"
        )
    return python, versions


Variant = tuple[str, str]
"""A contestant, and which variant of it."""


def _contestants(args: argparse.Namespace) -> dict[Variant, Callable[[], float]]:
    """What to measure; each returns environment frames/s."""
    contestants: dict[Variant, Callable[[], float]] = {
        (OURS, f"{WORKLOADS[WORKLOAD].actors} actors"): functools.partial(_ours, args)
    }
    for vector, threads in itertools.product(on_policy_contestants.VECTORS, args.threads):
        variant = (THEIRS, f"{vector}, {threads} thread{'' if threads == 1 else 's'}")
        contestants[variant] = functools.partial(_theirs, args, vector, threads)
    return contestants


def summary(
    measured: Mapping[Variant, Sequence[float]],
) -> dict[str, dict[str, str | float]]:
    """Each contestant's best variant.

    Args:
      measured: environment frames/s in each round.

    Returns:
      By contestant: `variant`, `frames_per_s` and the `ratio` of ours to it.
    """
    (ours,) = [values for (name, _), values in measured.items() if name == OURS]
    best: dict[str, Variant] = {}
    for key in sorted(measured, key=lambda key: statistics.median(measured[key])):
        best[key[0]] = key
    return {
        name: {
            "variant": key[1],
            "frames_per_s": statistics.median(measured[key]),
            "ratio": report.median_ratio(ours, measured[key]),
        }
        for name, key in sorted(best.items(), key=lambda item: item[0] != OURS)
    }


def _ours(args: argparse.Namespace) -> float:
    options = argparse.Namespace(
        workload=WORKLOAD,
        compute_dtype="float32",
        jit="auto",
        actors=WORKLOADS[WORKLOAD].actors,
        num_envs=None,
        seconds=args.seconds,
        warmup=args.warmup,
    )
    whole = training.measure_whole(options)
    return whole["frames"] / whole["seconds"]


def _theirs(args: argparse.Namespace, vector: str, threads: int) -> float:
    command = [args.contestants_python, "-m", _MODULE, f"--vector={vector}"]
    command += [f"--threads={threads}", f"--seconds={args.seconds}"]
    with tempfile.TemporaryDirectory() as folder:  # MuJoCo writes its log where it is started.
        result = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(_FOLDER)},
            capture_output=True,
            text=True,
            timeout=args.seconds + _START_TIMEOUT_S,
        )
    if result.returncode:
        raise SystemExit(f"error: {' '.join(command)} failed:\n{result.stderr}")
    return float(result.stdout.split()[-1])


if __name__ == "__main__":
    main()
