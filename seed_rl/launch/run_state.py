"""What the supervisor can see of a run from outside: its files, and whether there is room for them.

The learner tells how far it is in a file. On a full disk it cannot, so the supervisor looks itself.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import time

from seed_rl.common.run_files import checkpoint_list
from seed_rl.common.run_files import progress as progress_lib
from seed_rl.common.run_files.progress import Progress
from seed_rl.common.system import files

_LATE_S = 3.0  # The learner writes every second.
_PROBE_PERIOD_S = 2.0
_PROBE_BYTES = 16384  # More than what files of a few bytes may find in the last block.


class RunState:
    """A run in `logdir`, where nothing of an earlier one's progress is left."""

    def __init__(self, logdir: pathlib.Path):
        self._logdir = logdir
        self._started = time.time()
        self._progress: Progress | None = None
        self._saved_before = self.saved_frames()
        self._probed = time.monotonic()
        self._problem: str | None = None

    @property
    def phase(self) -> str:
        """The learner's; "starting" before it told one."""
        return self._progress.phase if self._progress else "starting"

    @property
    def resumes_from(self) -> int | None:
        """Environment frames of the newest checkpoint when the run began."""
        return self._saved_before

    def saved_frames(self) -> int | None:
        """Environment frames of the newest checkpoint; None if there is none."""
        return checkpoint_list.saved_frames(self._logdir)

    def progress(self) -> Progress | None:
        """What the learner last told; None before that."""
        self._progress = progress_lib.read(self._logdir) or self._progress
        return self._progress

    def problem(self) -> str | None:
        """Why the learner's files cannot be written; None as long as it keeps writing them."""
        written = self._progress.time if self._progress else self._started
        if time.time() - written < _LATE_S:
            self._problem = None
        elif time.monotonic() - self._probed >= _PROBE_PERIOD_S:
            self._probed = time.monotonic()
            self._problem = self.cannot_write()
        return self._problem

    def cannot_write(self) -> str | None:
        """Tries to write in the directory; returns what is wrong, or None."""
        probe = self._logdir / f".probe-{os.getpid()}"
        try:
            with open(probe, "wb") as file:
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
        """What the same command does next, in words."""
        frames = self.saved_frames()
        if frames is None:
            return "nothing is saved, so the same command begins anew"
        return f"the same command goes on from here ({frames:,} frames)"

    def loss(self) -> str:
        """That the last checkpoint is missing, and what there is instead."""
        frames = self.saved_frames()
        newest = "newest: none" if frames is None else f"newest: {frames:,} frames"
        reason = self.cannot_write()
        return f"the last checkpoint could NOT be saved ({newest}){': ' + reason if reason else ''}"
