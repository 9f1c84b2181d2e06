"""Measures a trained agent: seed-rl evaluate LOGDIR

`seed_rl.play` with the defaults of a measurement: 100 episodes in 20 environments at once.
"""

import sys

from seed_rl import play

if __name__ == "__main__":
    sys.exit(play.main(evaluates=True))
