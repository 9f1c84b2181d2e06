"""The program behind `./stop_local.sh`: stops a run that was started elsewhere.

Only the standard library is used.
"""

from __future__ import annotations

import os
import pathlib
import signal
import sys
import time
from collections.abc import Sequence

from seed_rl.common.errors import UserError
from seed_rl.common.system import terminal
from seed_rl.launch import run_lock

USAGE = "usage: ./stop_local.sh [LOGDIR]"
_HELP = f"""\
{USAGE}

Stops a run that ./run_local.sh started elsewhere, in good order: a checkpoint is saved first.

  LOGDIR  directory of the run (default: the only run that is going on under runs/)
"""
_PATIENCE_S = 330.0  # More than the supervisor gives the learner.


def find(arguments: Sequence[str], runs: pathlib.Path) -> pathlib.Path:
    """The directory of the run to stop: the one given, or the only one that is going on.

    Raises:
      UserError: there is none, or more than one.
    """
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        raise UserError(f"at most one LOGDIR may be given.\n{USAGE}")
    if arguments:
        logdir = pathlib.Path(arguments[0]).absolute()
        if run_lock.running_pid(logdir) is None:
            raise UserError(f"No run is going on in {logdir}.")
        return logdir
    logdirs = sorted(path.parent for path in runs.glob(f"*/{run_lock.FILE_NAME}"))
    running = [logdir for logdir in logdirs if run_lock.running_pid(logdir) is not None]
    if not running:
        raise UserError(f"No run is going on under {runs}; name its LOGDIR.\n{USAGE}")
    if len(running) > 1:
        names = "".join(f"\n  ./stop_local.sh {logdir}" for logdir in running)
        raise UserError(f"Several runs are going on; choose one:{names}")
    return running[0]


def stop(logdir: pathlib.Path) -> None:
    """Asks the run in `logdir` to stop and waits until all its processes have ended.

    Raises:
      UserError: it does not end.
    """
    pid = run_lock.running_pid(logdir)
    try:
        if pid:
            os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        pass  # It was killed; what it left is just being ended.
    except PermissionError as error:
        raise UserError(f"Process {pid} belongs to another user; ask them, or root.") from error
    deadline = time.monotonic() + _PATIENCE_S
    while run_lock.running_pid(logdir) is not None:
        if time.monotonic() > deadline:
            raise UserError(f"Process {pid} has not ended after {_PATIENCE_S:g} s; see {logdir}.")
        time.sleep(0.1)


def main(arguments: Sequence[str]) -> int:
    if "--help" in arguments or "-h" in arguments:
        terminal.end_without_reader()
        print(_HELP, end="")
        return 0
    try:
        logdir = find(arguments, pathlib.Path("runs").absolute())
        print(f"stopping the run in {logdir} ...", flush=True)
        stop(logdir)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
