"""Checks the command line of a run, on the machine that sends the run to a cluster.

    python -m seed_rl.cluster.flag_check GAME AGENT ACTORS [ENVS_PER_ACTOR] [--flag=value ...]

The run's own program checks its flags, in half a second; otherwise a misspelled one would only be
found on machines that are already rented. Any Python runs this: where packages are missing, it
checks the rest and says in one line that flags were not checked. Exit code 0: no mistake was found;
2: a mistake, which the message names.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Sequence

from seed_rl.cluster import roles, run
from seed_rl.common.errors import UserError, exits

# Messages of Python and of `missing_extra` about a missing package.
_MISSING_PACKAGE = re.compile(r"No module named '?[\w.]+'?")


def check(arguments: Sequence[str], evaluators: int = 0) -> str | None:
    """Checks a command line.

    Args:
      arguments: those of `python -m seed_rl.cluster`; the logdir is not looked at.
      evaluators: number of evaluators.

    Returns:
      Why flags could not be checked; None: they are right.

    Raises:
      UserError: something is wrong; the message says what to change.
    """
    options, _ = run.parse(arguments, evaluators)
    try:
        from seed_rl.launch import local
    except ImportError as error:
        return str(error)
    with tempfile.TemporaryDirectory() as folder:
        # Ignore runs in directories of this machine.
        here = dataclasses.replace(options, logdir=pathlib.Path(folder) / "run")
        if options.learners > 1:  # Any address will do.
            ports = range(1, options.learners + 1)
            addresses = ",".join(f"localhost:{port}" for port in ports)
            here = dataclasses.replace(here, learner_addresses=addresses)
        try:
            local.ask_program(here)
        except UserError as error:
            if missing := _MISSING_PACKAGE.search(str(error)):
                return missing.group()
            raise
    return None


@exits
def main(arguments: Sequence[str]) -> int:
    if unchecked := check(arguments, roles.evaluators_from(os.environ)):
        print(
            f"warning: flags were not checked, because {sys.executable} lacks packages "
            f"({unchecked}): scripts/setup.sh installs them.",
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
