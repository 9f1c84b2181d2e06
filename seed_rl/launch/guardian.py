"""Cleans up after a supervisor that was killed.

When the supervisor dies, the kernel signals its children, but not their descendants, and a child
may ignore the signal. So this small process waits until the supervisor's end of a pipe closes,
gives the learner time to save its checkpoint (the kernel has sent it SIGTERM), and then kills every
remaining process group. Until then it holds the run's lock, so that no new run starts in a
directory that the old learner may still write to.

Standard library only.
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
      lock: file descriptor of the run's lock.
      grace_s: how long the learner may take to save its checkpoint.
      scratch: directory to remove on exit.
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
        """Registers a process group; a patient one gets `grace_s` to exit by itself."""
        self._send(f"{'wait' if patient else 'kill'} {group}")

    def forget(self, group: int) -> None:
        """Unregisters a process group that has exited."""
        self._send(f"forget {group}")

    def close(self) -> None:
        """Has the guardian clean up and exit, and waits for it."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # It was killed; the run works without it.
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
    """Whether the process runs; a zombie, which may never be reaped, does not."""
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
