"""Runs the real study over `study_launcher.py`, whose learners only pretend.

study_program.py SPEC.json [--flag=value ...]
"""

import functools
import pathlib
import sys

from seed_rl.study import program, runner

LAUNCHER = (sys.executable, str(pathlib.Path(__file__).with_name("study_launcher.py")))


def main() -> int:
    runner.check = lambda study: None  # The pretended flags are no flags of the program.
    runner.Runner = functools.partial(runner.Runner, launcher=LAUNCHER)
    return program.main()


if __name__ == "__main__":
    sys.exit(main())
