"""What the supervisor can see of a run from outside: its files, and whether the disk is full.

The learner reports its progress in a file. On a full disk it cannot, so the supervisor checks.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
import shutil
import sys
import time

from seed_rl.common.errors import UserError
from seed_rl.common.run_files import checkpoint_list, run_record
from seed_rl.common.run_files import progress as progress_lib
from seed_rl.common.run_files.progress import Progress
from seed_rl.common.system import files

_LATE_S = 3.0  # The learner writes every second.
_PROBE_PERIOD_S = 2.0
_PROBE_BYTES = 16384  # Enough to need new blocks even if tiny files still fit.


class RunState:
    """A run in `logdir`, from which an earlier run's progress file has been removed.

    Attributes:
      resumes_from: environment frames of the newest checkpoint at the start of the run, if any.

    Args:
      logdir: the run's directory.
      fresh: whether the command of the run begins a new one each time.
    """

    def __init__(self, logdir: pathlib.Path, fresh: bool = False):
        self._logdir = logdir
        self._command = "the same command without --restart=fresh" if fresh else "the same command"
        self._started = time.time()
        self._progress: Progress | None = None
        self.resumes_from = self.saved_frames()
        self._probed = time.monotonic()
        self._problem: str | None = None

    @property
    def phase(self) -> str:
        """The learner's phase; "starting" before its first report."""
        return self._progress.phase if self._progress else "starting"

    def saved_frames(self) -> int | None:
        """Environment frames of the newest checkpoint; None if there is none."""
        return checkpoint_list.saved_frames(self._logdir)

    def progress(self) -> Progress | None:
        """The learner's last report; None before the first."""
        self._progress = progress_lib.read(self._logdir) or self._progress
        return self._progress

    def progress_of(self, learner: int) -> Progress | None:
        """The last report of a learner other than the first; None before its first report."""
        return progress_lib.read(self._logdir / progress_lib.LEARNERS.format(index=learner))

    def restart(self) -> None:
        """Forgets the reports of learners that are started again."""
        progress_lib.forget(self._logdir)
        self._progress, self.resumes_from = None, self.saved_frames()
        self._started = time.time()

    def problem(self) -> str | None:
        """Why the learner's files cannot be written; None while it keeps writing them."""
        written = self._progress.time if self._progress else self._started
        if time.time() - written < _LATE_S:
            self._problem = None
        elif time.monotonic() - self._probed >= _PROBE_PERIOD_S:
            self._probed = time.monotonic()
            self._problem = self.cannot_write()
        return self._problem

    def cannot_write(self) -> str | None:
        """Tries to write to the directory; returns the problem, or None."""
        probe = self._logdir / f".probe-{os.getpid()}"
        try:
            with files.open_no_link(probe, "wb") as file:
                file.write(bytes(_PROBE_BYTES))
        except OSError as error:
            if files.is_no_room(error):
                return files.no_room(self._logdir)
            return f"cannot write to {self._logdir}: {error.strerror}"
        finally:
            with contextlib.suppress(OSError):
                probe.unlink()
        return None

    def outlook(self) -> str:
        """What running the same command again will do, for messages."""
        frames = self.saved_frames()
        if frames is None:
            return "nothing was saved, so the same command starts over"
        return f"{self._command} resumes from {frames:,} frames"

    def ending(self) -> str:
        """Message: training has ended, why if a callback ended it, and what to do next."""
        from seed_rl.common.run_files import foreign_code  # Imports Gymnasium.

        report = self._progress
        record = {}
        with contextlib.suppress(UserError):
            record = run_record.read(self._logdir)
        program = pathlib.Path(sys.executable).with_name("seed-rl")
        module = [sys.executable, "-m", "seed_rl.command"]  # Some images lack the command.
        command = [os.path.relpath(program)] if program.exists() else module
        if os.path.realpath(shutil.which("seed-rl") or "") == os.path.realpath(program):
            command = ["seed-rl"]
        logdir = os.path.relpath(self._logdir)
        playing = [logdir, *(["--trust"] if foreign_code.find(record) else [])]
        video = "--video=agent.mp4"
        following = [["evaluate", *playing], ["play", *playing, video], ["plot", logdir]]
        if record.get(run_record.PROGRAM, "").startswith("seed_rl.external."):
            following = [["serve", logdir], ["plot", logdir]]  # Only clients have the environments.
        elif record.get("env_name") == foreign_code.OF_THE_CALLER:  # Only it can create them.
            following = [["plot", logdir]]
        lines = [shlex.join([*command, *arguments]) for arguments in following]
        why = f": {report.reason}" if report and report.reason else ""
        return "\n  ".join([f"training has ended{why}. Next:", *lines])

    def loss(self) -> str:
        """Message: the last checkpoint was not saved; which one is the newest."""
        reason = self.cannot_write()
        return checkpoint_list.not_saved(self._logdir) + (f": {reason}" if reason else "")
