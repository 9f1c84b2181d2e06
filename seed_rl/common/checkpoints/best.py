"""The best checkpoint of a run, kept beside its newest ones (`--keep_best`).

`LOGDIR/best` can be played and evaluated as a run can. Its `best.json` has the return for which the
checkpoint was kept and the frames after which it was saved.
"""

from __future__ import annotations

import json
import logging
import math
import time

from seed_rl.common.callbacks import Callback, Report
from seed_rl.common.run_files import checkpoint_list
from seed_rl.common.system import files

_FILE = "best.json"
_PERIOD_S = 30.0


class BestCheckpoint(Callback):
    """Saves a checkpoint when the agent is better, at most once per period and at the end.

    A checkpoint kept by an earlier learner stays until its return is exceeded.

    Args:
      period_s: shortest time between two checkpoints.
    """

    def __init__(self, period_s: float = _PERIOD_S):
        self._period_s = period_s
        self._saved = self._best = -math.inf

    def on_start(self) -> None:
        self._folder = self.run.logdir / checkpoint_list.BEST
        if not checkpoint_list.list_checkpoints(self.run.logdir / checkpoint_list.DIRECTORY):
            return  # The run starts over: what is there is of another.
        try:
            self._best = float(json.loads((self._folder / _FILE).read_text("utf-8"))["return"])
        except (OSError, ValueError, LookupError, TypeError):
            pass  # None was kept, or its return is unknown.

    def on_report(self, report: Report) -> None:
        mean = report.mean_return
        if mean is None or not mean > self._best:
            return
        if not report.last and time.monotonic() - self._saved < self._period_s:
            return
        self._saved = time.monotonic()
        if self.run.save(self._folder) is None:
            return  # `save` has warned, and the earlier one is intact.
        self._best = mean
        record = {"return": mean, "frames": report.frames}
        try:
            files.write_atomically(self._folder / _FILE, json.dumps(record) + "\n")
        except OSError as error:
            logging.warning("Cannot write %s: %s", self._folder / _FILE, error)
        logging.info("Kept the best agent so far, whose mean return is %.4g.", mean)
