"""Draws what an Atari agent sees after some random steps: its last four frames, the oldest first.

.venv/bin/python scripts/atari_picture.py FILE.png [GAME [STEPS]]
"""

from __future__ import annotations

import sys

import imageio.v2 as imageio
import numpy as np

from seed_rl.atari.environment import AtariConfig, create_environment

_STACK = 4
_SCALE = 2
_GAP = 4  # White pixels between frames.


def main() -> None:
    path, *rest = sys.argv[1:]
    game, steps = [*rest, *("Breakout", "60")[len(rest) :]]
    env = create_environment(0, AtariConfig(game=game, sticky_actions=False))
    frames = [env.reset(seed=0)[0]]
    env.action_space.seed(0)
    while len(frames) <= int(steps):
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        frames.append(env.reset()[0] if terminated or truncated else observation)
    env.close()
    large = [np.kron(frame[..., 0], np.ones((_SCALE, _SCALE), np.uint8)) for frame in frames]
    gap = np.full((large[0].shape[0], _GAP), 255, np.uint8)
    seen = [part for frame in large[-_STACK:] for part in (gap, frame)]
    imageio.imwrite(path, np.hstack(seen[1:]))


if __name__ == "__main__":
    main()
