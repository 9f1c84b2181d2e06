"""Stops a run that was started in another terminal; `./stop_local.sh` runs this program.

Standard library only.
"""

from __future__ import annotations

import os
import pathlib
import shlex
import signal
import sys
import time
from collections.abc import Sequence

from seed_rl.common.config import logdirs
from seed_rl.common.errors import NotSavedError, UserError, exits
from seed_rl.common.run_files import checkpoint_list, progress
from seed_rl.common.system import terminal
from seed_rl.launch import run_lock

USAGE = "usage: seed-rl stop [LOGDIR]   (or ./stop_local.sh [LOGDIR])"
_HELP = f"""\
{USAGE}

Stops a run or study on this machine, which saves its checkpoints first.

  LOGDIR  the run's directory (default: the only active run in runs/*/ or runs/*/*/)
"""
_PATIENCE_S = 330.0  # Longer than the supervisor waits for the learner.


def find(arguments: Sequence[str], runs: pathlib.Path) -> pathlib.Path:
    """The directory of the run to stop: the one given, or that of the only active run.

    Raises:
      UserError: no run is active, or more than one.
    """
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        raise UserError(f"Expected at most one LOGDIR.\n{USAGE}")
    if arguments:
        logdir = pathlib.Path(arguments[0]).absolute()
        if run_lock.running_pid(logdir) is None:
            raise UserError(f"No run is active in {logdir}.")
        return logdir
    # Not deeper: a study stops its runs, which are in NAME/runs/.
    locks = [*runs.glob(f"*/{run_lock.FILE_NAME}"), *runs.glob(f"*/*/{run_lock.FILE_NAME}")]
    found = sorted(path.parent for path in locks)
    running = [logdir for logdir in found if run_lock.running_pid(logdir) is not None]
    if not running:
        raise UserError(f"No run is active under {runs}; give its LOGDIR.\n{USAGE}")
    if len(running) > 1:
        names = "".join(f"\n  ./stop_local.sh {shlex.quote(str(run))}" for run in running)
        raise UserError(f"Several runs are active; choose one:{names}")
    return running[0]


def stop(logdir: pathlib.Path) -> None:
    """Asks the run in `logdir` to stop and waits until all its processes have exited.

    Raises:
      UserError: it belongs to another user, its process is unknown, or it does not stop in time.
    """
    pid = run_lock.running_pid(logdir)
    if pid == 0:
        time.sleep(0.1)  # The run may just be starting.
        pid = run_lock.running_pid(logdir)
    if pid == 0:
        raise UserError(f"{logdir / run_lock.FILE_NAME} does not contain a run's process id.")
    if pid and run_lock.is_elsewhere(logdir, pid):
        raise UserError(
            f"The run in {logdir} is not a process here: stop it in its container, or on its "
            "machine."
        )
    try:
        if pid:
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGCONT)  # After Ctrl-Z.
    except ProcessLookupError:
        pass  # It was killed; its guardian is cleaning up.
    except PermissionError as error:
        raise UserError(
            f"Process {pid} belongs to another user; only they or root can stop it."
        ) from error
    deadline = time.monotonic() + _PATIENCE_S
    while run_lock.running_pid(logdir) is not None:
        if time.monotonic() > deadline:
            raise UserError(
                f"Process {pid} has not exited after {_PATIENCE_S:g} s; see {logdir}. If the run "
                "is on another machine or in a container, stop it there."
            )
        time.sleep(0.1)


@exits
def main(arguments: Sequence[str]) -> int:
    if "--help" in arguments or "-h" in arguments:
        terminal.end_without_reader()
        print(_HELP, end="")
        return 0
    if not arguments:
        logdirs.check("runs")  # Its files say which processes to signal.
    logdir = find(arguments, pathlib.Path("runs").absolute())
    print(f"stopping the run in {logdir} ...", flush=True)
    stop(logdir)
    report = progress.read(logdir)
    if report is not None and report.phase in ("training", "saving", "failed"):
        raise NotSavedError(f"{checkpoint_list.not_saved(logdir)}; see {logdir / 'logs'}")
    print("stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
