"""Draws what a football agent sees after some steps of running to the right: a PNG file.

.venv/bin/python scripts/football_picture.py FILE.png [SCENARIO [STEPS]]
"""

from __future__ import annotations

import sys
from typing import Any

import imageio.v2 as imageio

from seed_rl.football.environment import FootballConfig, create_environment

_RUN_RIGHT = 5


def main() -> None:
    path, *rest = sys.argv[1:]
    game, steps = [*rest, *("11_vs_11_easy_stochastic", "40")[len(rest) :]]
    env = create_environment(0, FootballConfig(game=game, render_mode="rgb_array"))
    env.reset(seed=0)
    for _ in range(int(steps)):
        env.step(_RUN_RIGHT)
    frame: Any = env.render()
    imageio.imwrite(path, frame)
    env.close()


if __name__ == "__main__":
    main()
