"""Compares actors as threads with actors as processes in `seed_rl.experiment.run`.

    python -m benchmarks.local_actors [--seconds=15] [--rounds=3] [--json=FILE]

V-trace trains with 2 actors of 8 environments each: on CartPole, whose steps are Python and hold
Python's global lock, and on Pong, whose native vector environment releases it. Figures are
environment frames/s after the warm-up, medians over the interleaved rounds.
"""

from __future__ import annotations

import functools
import statistics
import tempfile
import time
from typing import Any

from benchmarks import report
from seed_rl import experiment
from seed_rl.agents.vtrace.algorithm import create_job
from seed_rl.atari import vtrace_main as atari
from seed_rl.common.acting.local_actors import KINDS
from seed_rl.common.callbacks import Callback, Report
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.network_config import ConvNetworkConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.networks.network_factory import create_network
from seed_rl.common.run_files.progress import Progress
from seed_rl.gym import vtrace_main as gym

_ENVIRONMENTS = {
    "CartPole": (gym.FAMILY, {}),
    "Pong": (atari.FAMILY, {"game": "Pong"}),
}
_FOREVER = 10**12


class _Window(Callback):
    """Frames/s between the end of the warm-up and `seconds` later."""

    def __init__(self, warmup: float, seconds: float):
        self._warmup = warmup
        self._seconds = seconds
        self._training_since: float | None = None
        self._first: Progress | None = None
        self.frames_per_s = 0.0

    def on_report(self, report: Report) -> None:
        progress = report.progress
        if not progress.frames:
            return
        if self._training_since is None:
            self._training_since = time.monotonic()
        elif self._first is None:
            if time.monotonic() - self._training_since >= self._warmup:
                self._first = progress
        elif progress.time - self._first.time >= self._seconds:
            frames = progress.frames - self._first.frames
            self.frames_per_s = frames / (progress.time - self._first.time)
            self.run.stop("measured")


def main() -> None:
    """Runs the benchmark."""
    parser = report.parser(__doc__ or "", seconds=15)
    parser.add_argument("--warmup", type=float, default=8, help="seconds before measuring")
    args = parser.parse_args()
    contestants = {
        (name, kind): functools.partial(_measure, name, kind, args)
        for name in _ENVIRONMENTS
        for kind in KINDS
    }
    measured = report.interleave(contestants, args.rounds)
    medians = {key: statistics.median(values) for key, values in measured.items()}
    report.print_table(
        f"2 actors of 8 environments; {args.rounds} x {args.seconds:g} s each",
        ("environment", *KINDS),
        [(name, *(f"{medians[name, kind]:,.0f}" for kind in KINDS)) for name in _ENVIRONMENTS],
    )
    report.write_json(
        args.json, {f"{name}_{kind}_frames_per_s": value for (name, kind), value in medians.items()}
    )


def _measure(name: str, kind: str, args: Any) -> float:
    family, options = _ENVIRONMENTS[name]
    network = ConvNetworkConfig(stack_size=4 if name == "Pong" else 1, torso="nature")
    window = _Window(args.warmup, args.seconds)
    with tempfile.TemporaryDirectory() as logdir:
        job = create_job(
            family.create,
            lambda actions, observations, distribution: create_network(
                observations, distribution, network
            ),
            run=RunConfig(logdir=logdir, num_envs=16, env_batch_size=8),
            config=LearnerConfig(
                total_environment_frames=_FOREVER,
                batch_size=16,
                save_model=False,
                log_period_secs=0.2,
            ),
            env_config=family.config(**options),
        )
        experiment.run(job, actors=kind, create_batch=family.create_batch, callbacks=[window])
    return window.frames_per_s


if __name__ == "__main__":
    main()
