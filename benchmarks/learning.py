"""Measures how quickly CartPole is learned, and whether it stays learned.

    python -m benchmarks.learning [--json=FILE] [--seeds=1,2,3] [--after=2000000] [-- FLAGS ...]

Runs `./run_local.sh gym vtrace 2 8 --env_name=CartPole-v1` for each seed in turn, with the default
settings and the given FLAGS. Once the mean return of the last 100 training episodes has reached
`--goal`, a run continues for `--after` environment frames, but ends at `--limit` frames. Seconds
count from the start of the command. *lowest after* is the lowest mean of 100 episodes after the
goal was reached: it reveals policies that collapse occasionally.
"""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

import numpy as np

from benchmarks import report
from seed_rl.common.run_files import progress, returns_log

_EPISODES = 100
_POLL_S = 2.0


class Learned(NamedTuple):
    """When the goal was reached, and what happened afterwards; NaN if it was not reached."""

    frames: float
    seconds: float
    lowest_after: float
    frames_after: float


def main() -> None:
    """Runs the benchmark."""
    parser = report.parser(__doc__ or "", seconds=0, rounds=1)
    parser.add_argument("--seeds", default="1,2,3", help="one run per seed (%(default)s)")
    parser.add_argument("--goal", type=float, default=475, help="mean return (%(default)s)")
    parser.add_argument(
        "--after", type=int, default=2_000_000, help="frames after the goal (%(default)s)"
    )
    parser.add_argument(
        "--limit", type=int, default=4_000_000, help="maximum frames per run (%(default)s)"
    )
    parser.add_argument("--keep", metavar="DIR", help="keep the runs in DIR, as seed_1 etc.")
    parser.add_argument("flags", nargs="*", help="flags for the program, after --")
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    judged = (options.goal, options.after, options.limit, options.flags)
    with tempfile.TemporaryDirectory(prefix="learning_") as temporary:
        folder = pathlib.Path(options.keep or temporary)
        results = {seed: run(seed, folder / f"seed_{seed}", *judged) for seed in seeds}
    report.print_table(
        f"CartPole-v1, mean return of {_EPISODES} episodes of at least {options.goal:g}",
        ["seed", "after s", "after frames", "lowest after", "within frames"],
        [[s, r.seconds, r.frames, r.lowest_after, r.frames_after] for s, r in results.items()],
    )
    report.write_json(
        options.json,
        {
            "slowest_s": max(r.seconds for r in results.values()),
            "lowest_after": min(r.lowest_after for r in results.values()),
            "seeds": {str(seed): r._asdict() for seed, r in results.items()},
        },
    )


def run(
    seed: int, logdir: pathlib.Path, goal: float, after: int, limit: int, flags: list[str]
) -> Learned:
    """Runs one seed; stops it `after` frames after the goal was reached."""
    command = [
        *(sys.executable, "-m", "seed_rl.launch.local", "gym", "vtrace", "2", "8"),
        *("--env_name=CartPole-v1", f"--seed={seed}", f"--total_environment_frames={limit}"),
        *(f"--logdir={logdir}", "--restart=fresh", "--tensorboard=false", *flags),
    ]
    began = time.time()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            time.sleep(_POLL_S)
            learned = judge(logdir, goal, began)
            now = progress.read(logdir)
            if now is not None and now.frames >= learned.frames + after:
                break
    finally:
        process.send_signal(signal.SIGINT)  # Never leave it running.
        code = process.wait()
    if code:
        raise SystemExit(f"error: {' '.join(command)} exited with code {code}")
    return judge(logdir, goal, began)


def judge(logdir: pathlib.Path, goal: float, began: float) -> Learned:
    """Evaluates the returns of a run.

    Args:
      logdir: the run's directory; returns.csv may be missing.
      goal: mean return to reach.
      began: Unix time of the start.
    """
    nan = float("nan")
    try:
        rows = [row for row in returns_log.read(logdir / "returns.csv") if not row.evaluation]
    except OSError:
        rows = []
    if len(rows) < _EPISODES:
        return Learned(nan, nan, nan, nan)
    returns = [row.episode_return for row in rows]
    means = np.convolve(returns, np.full(_EPISODES, 1 / _EPISODES), "valid")
    reached = np.flatnonzero(means >= goal - 1e-9)
    if not len(reached):
        return Learned(nan, nan, nan, nan)
    first = rows[_EPISODES - 1 :][reached[0]]
    return Learned(
        first.frames,
        first.time - began,
        float(means[reached[0] :].min()),
        rows[-1].frames - first.frames,
    )


if __name__ == "__main__":
    main()
