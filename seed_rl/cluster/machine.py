"""Several actors on one machine, for engines that start one process on each."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterable

from seed_rl.cluster import say
from seed_rl.common.errors import ExitCode
from seed_rl.launch.process import describe_exit
from seed_rl.launch.restarts import CrashRecord, RestartPolicy, actor_is_final

STOPPED = 128 + signal.SIGTERM
"""The exit code that shells report for SIGTERM."""

_TICK_S = 0.2


class Machine:
    """Starts actors, restarts those that fail, and ends all of them at SIGTERM or SIGINT.

    Args:
      start: starts the actor with this index, which must not outlive this process; None: there is
        nothing more to do.
      clock: monotonic seconds; tests replace it.
      sleep: waits for a number of seconds; tests replace it.
    """

    def __init__(
        self,
        start: Callable[[int], subprocess.Popen[bytes] | None],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._start = start
        self._clock = clock
        self._sleep = sleep
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._due: dict[int, float] = {}
        self._started: dict[int, float] = {}
        self._records: dict[int, CrashRecord] = {}

    def run(self, indices: Iterable[int]) -> int:
        """Runs these actors until all have ended.

        Returns:
          0, or the exit code of the last actor that failed for good.

        Raises:
          SystemExit: 143, after a signal, so that an engine that preempts the machine does not take
            its work for done.
        """
        self._due = {index: self._clock() for index in indices}
        code = 0
        numbers = (signal.SIGTERM, signal.SIGINT)
        previous = {number: signal.signal(number, self._stop) for number in numbers}
        try:
            while self._due or self._running:
                self._start_due()
                for index in list(self._running):
                    ended = self._running[index].poll()
                    if ended is not None:
                        del self._running[index]
                        code = self._judge(index, ended) or code
                self._sleep(_TICK_S)
        finally:
            for process in self._running.values():
                process.terminate()
            for process in self._running.values():
                process.wait()
            for number, handler in previous.items():
                signal.signal(number, handler)
        return code

    def _start_due(self) -> None:
        for index, due in list(self._due.items()):
            if due > self._clock():
                continue
            del self._due[index]
            process = self._start(index)
            if process is not None:
                self._running[index] = process
                self._started[index] = self._clock()

    def _judge(self, index: int, code: int) -> int:
        """Decides whether an actor that has ended starts again; returns its code if not."""
        if actor_is_final(code):
            return code
        if code == ExitCode.NO_LEARNER:  # It may yet come; only the engine gives up.
            say(f"actor {index} did not find the learner; starting the actor again")
            self._due[index] = self._clock() + _TICK_S
            return 0
        record = self._records.setdefault(index, CrashRecord(RestartPolicy()))
        record.crashed(self._clock() - self._started[index])
        if record.given_up:
            say(f"actor {index} {describe_exit(code)}, for the {record.failures}th time")
            return code if code > 0 else 128 - code
        say(f"actor {index} {describe_exit(code)}; starting it again in {record.pause_s:.0f} s")
        self._due[index] = self._clock() + record.pause_s
        return 0

    def _stop(self, number: int, frame: types.FrameType | None) -> None:
        sys.exit(STOPPED)  # Also from `start`, which may be waiting for a learner.
