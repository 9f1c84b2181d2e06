"""Prints what the supervisor knows of a run whose directory has no room.

full_run_state.py LOGDIR
"""

import pathlib
import sys
import time

from seed_rl.launch.run_state import RunState


def main():
    state = RunState(pathlib.Path(sys.argv[1]))
    print(state.problem())
    time.sleep(3.2)
    print(state.problem())
    print(state.loss())


if __name__ == "__main__":
    main()
