"""Several learners as one job, for engines that do not restart them together.

    python -m seed_rl.cluster.together LEARNERS COMMAND [ARG ...] -- PROGRAM [ARG ...]

starts COMMAND ARG ... PROGRAM ARG ... LEARNERS times, where {} before the -- stands for the index.
Each gets SEED_RL_INDEX, and a SEED_RL_START that differs at each start. They end together: after a
failure of one, the others get some time to notice. After a crash, all are restarted and continue
from the last checkpoint; not after a normal end, a user error, or --stopped_exit_code. The engine
sends signals to the learners itself: here, a signal only prevents restarts.

The exit code is that of the learner to blame (`seed_rl.launch.restarts.to_blame`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import types
import uuid
from collections.abc import Callable, Sequence

from seed_rl.cluster import say
from seed_rl.cluster.run import stopped_code
from seed_rl.common.errors import LostLearnerError
from seed_rl.common.system.stop_signal import SIGNALS
from seed_rl.launch.process import describe_exit
from seed_rl.launch.restarts import FOLLOW_S, CrashRecord, RestartPolicy, is_final, to_blame

_TICK_S = 0.2
_KILL_S = 10.0
_LONGEST_WAIT_S = 1000.0  # For the other learners' addresses and connections.


class Together:
    """Learners that end and start together.

    Args:
      start: starts the learner with the given index, as part of the start with the given name.
      learners: their number.
      stopped_code: their exit code after a signal; 0: the same as at the end of training.
      clock: monotonic seconds; tests replace it.
      sleep: waits for a number of seconds; tests replace it.
    """

    def __init__(
        self,
        start: Callable[[int, str], subprocess.Popen[bytes]],
        learners: int,
        stopped_code: int = 0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._start = start
        self._learners = learners
        self._stopped_code = stopped_code
        self._clock = clock
        self._sleep = sleep
        self._stopping = False

    def run(self) -> int:
        """Runs until the learners have ended for good; returns the exit code."""
        record = CrashRecord(RestartPolicy())
        previous = {number: signal.signal(number, self._stop) for number in SIGNALS}
        try:
            while True:
                learner, code, lived_s = self._run_once()
                if is_final(code) or code == self._stopped_code or self._stopping:
                    return code
                waited_s = _LONGEST_WAIT_S if code == LostLearnerError.exit_code else 0.0
                record.crashed(lived_s - waited_s)
                if record.given_up:
                    say(f"learner {learner} {describe_exit(code)}; giving up")
                    return code
                say(
                    f"learner {learner} {describe_exit(code)}; starting all learners again from "
                    f"the last checkpoint in {record.pause_s:.0f} s"
                )
                self._pause(record.pause_s)
                if self._stopping:
                    return code
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _run_once(self) -> tuple[int, int, float]:
        """Runs all to their end; returns which is to blame, its exit code and its lifetime in s."""
        name = uuid.uuid4().hex
        began = self._clock()
        running: dict[int, subprocess.Popen[bytes]] = {}
        ended: dict[int, int] = {}
        lived_s: dict[int, float] = {}
        deadline = float("inf")
        try:
            for index in range(self._learners):
                running[index] = self._start(index, name)
            while running:
                for index in list(running):
                    if (code := running[index].poll()) is not None:
                        del running[index]
                        ended[index] = code if code >= 0 else 128 - code
                        lived_s[index] = self._clock() - began
                failed = any(code not in (0, self._stopped_code) for code in ended.values())
                if failed and deadline == float("inf"):
                    deadline = self._clock() + FOLLOW_S
                late_s = self._clock() - deadline
                for process in running.values() if late_s > 0 else ():
                    (process.kill if late_s > _KILL_S else process.terminate)()
                self._sleep(_TICK_S)
        finally:
            for process in running.values():
                process.kill()
        indices = list(ended)
        learner = indices[to_blame(list(ended.values()))]
        return learner, ended[learner], lived_s[learner]

    def _pause(self, seconds: float) -> None:
        until = self._clock() + seconds
        while self._clock() < until and not self._stopping:
            self._sleep(_TICK_S)

    def _stop(self, number: int, frame: types.FrameType | None) -> None:
        self._stopping = True


def main(arguments: Sequence[str]) -> int:
    learners = int(arguments[0])
    end = arguments.index("--")
    before, program = arguments[1:end], arguments[end + 1 :]

    def start(index: int, name: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*(a.replace("{}", str(index)) for a in before), *program],
            env={**os.environ, "SEED_RL_INDEX": str(index), "SEED_RL_START": name},
            stdin=subprocess.DEVNULL,
        )

    return Together(start, learners, stopped_code(program)).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
