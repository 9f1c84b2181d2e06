"""Measures what the environment layer adds to a football engine: packing, stacking, the protocol.

    python -m benchmarks.football [--json=FILE] [--seconds=S] [--rounds=N] [--game=SCENARIO]

*environment layer* is what an actor steps, `BatchedEnvironment` with one game; *bare engine* is
EnvPool called by hand. Both play the same games: equal seeds, equal actions. Rates are steps per
second of CPU time, of all threads of the process, so that other programs matter less; the ratio is
the median over the rounds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import envpool
import numpy as np

from benchmarks import report
from seed_rl.common.acting.batched_env import BatchedEnvironment, env_seeds
from seed_rl.football.environment import FootballConfig, create_environment

_SEED = 0


def main() -> None:
    """Runs the benchmark."""
    parser = report.parser(__doc__ or "", seconds=3)
    parser.add_argument("--game", default="academy_empty_goal_close", help="(%(default)s)")
    options = parser.parse_args()
    contestants = {
        "environment layer": lambda: _layer(options.game, options.seconds),
        "bare engine": lambda: _bare(options.game, options.seconds),
    }
    rates = report.interleave(contestants, options.rounds)
    report.print_table(
        f"{options.game}, one game",
        ("", "steps per CPU second"),
        [(name, statistics.median(values)) for name, values in rates.items()],
    )
    ratio = report.median_ratio(rates["environment layer"], rates["bare engine"])
    print(f"environment layer: {ratio:.3f} of the bare engine")
    report.write_json(options.json, {"game": options.game, "ratio": ratio, "rates": rates})


def _rate(step: Callable[[np.ndarray], object], seconds: float) -> float:
    """Steps per second of CPU time."""
    generator = np.random.default_rng(_SEED)
    began, steps = time.process_time(), 0
    while (spent := time.process_time() - began) < seconds:
        step(generator.integers(19, size=1, dtype=np.int32))
        steps += 1
    return steps / spent


def _layer(game: str, seconds: float) -> float:
    env = BatchedEnvironment(create_environment, 1, 0, FootballConfig(game, engine="envpool"))
    env.reset(seed=_SEED)
    rate = _rate(env.step, seconds)
    env.close()
    return rate


def _bare(game: str, seconds: float) -> float:
    (seed,) = env_seeds(_SEED, np.zeros(1, np.int32))
    pool = envpool.make_gymnasium(f"gfootball/{game}-v1", num_envs=1, num_threads=1, seed=seed)
    pool.reset()

    def step(actions: np.ndarray) -> None:
        _, _, terminated, truncated, _ = pool.step(actions)
        if terminated[0] or truncated[0]:
            pool.reset()

    rate = _rate(step, seconds)
    pool.close()
    return rate


if __name__ == "__main__":
    main()
