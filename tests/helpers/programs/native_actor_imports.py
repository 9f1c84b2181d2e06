"""Steps Atari games as actors do, and prints the heavy packages imported by then."""

import sys

import numpy as np

from seed_rl.atari import env
from seed_rl.common import actor  # noqa: F401 - as in actors.


def main():
    games = env.create_batch(np.arange(2))
    games.reset()
    games.step(np.zeros(2, np.int64))
    print([name for name in ("tensorflow", "cv2", "matplotlib") if name in sys.modules])


if __name__ == "__main__":
    main()
