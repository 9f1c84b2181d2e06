"""Ends what is left of a run whose supervisor was killed.

The kernel signals the supervisor's children when it dies, but neither their own children nor one
that does not listen. So this small process waits for the supervisor's end of a pipe to close,
gives the learner time to save its checkpoint (the kernel has sent it SIGTERM), and then kills
every process group that is left. It holds the run's lock meanwhile: no new run writes into the
same directory as long as an old learner may.

Only the standard library is used.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time


class Guardian:
    """The supervisor's side.

    Args:
      lock: descriptor of the run's lock.
      grace_s: how long a learner may take to save its checkpoint.
      scratch: a directory to remove at the end.
    """

    def __init__(self, lock: int, grace_s: float, scratch: pathlib.Path):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "seed_rl.launch.guardian", str(grace_s), str(scratch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[lock],
            start_new_session=True,
            text=True,
        )

    def watch(self, group: int, patient: bool = False) -> None:
        """Tells it of a process group; a patient one may end by itself first."""
        self._tell(f"{'wait' if patient else 'kill'} {group}")

    def forget(self, group: int) -> None:
        """Tells it that a process group has ended."""
        self._tell(f"forget {group}")

    def close(self) -> None:
        """Lets it end."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # Killed; the run can do without it.
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()


def main(grace_s: float, scratch: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: dict[int, str] = {}
    for line in sys.stdin:
        word, group = line.split()
        if word == "forget":
            groups.pop(int(group), None)
        else:
            groups[int(group)] = word
    for group, word in groups.items():
        if word == "kill":
            _kill(group)
    deadline = time.monotonic() + grace_s
    for group, word in groups.items():
        if word == "wait":
            while _is_alive(group) and time.monotonic() < deadline:
                time.sleep(0.1)
            _kill(group)
    shutil.rmtree(scratch, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie, which nobody may ever reap, does not."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2])
