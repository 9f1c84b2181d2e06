"""The best checkpoint of a run, kept beside its newest ones.

`LOGDIR/best` can be played and evaluated as a run can. Its `best.json` has the return for which the
checkpoint was kept and the frames after which it was saved.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from seed_rl.common.checkpoints.checkpoints import CheckpointManager
from seed_rl.common.run_files import checkpoint_list
from seed_rl.common.system import files

DIRECTORY, _FILE = "best", "best.json"
_PERIOD_S = 30.0


class BestCheckpoint:
    """Saves a checkpoint whenever the agent is better than before, but not all the time.

    Args:
      logdir: of the run; what an earlier learner has kept stays until it is exceeded.
      trackables: as for `CheckpointManager`.
      config: the options of the run.
      period_s: shortest time between two checkpoints.

    Raises:
      UserError: the directory cannot be created or written.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        trackables: Mapping[str, Any],
        config: Mapping[str, Any] | None = None,
        period_s: float = _PERIOD_S,
    ):
        self._folder = Path(logdir) / DIRECTORY
        self._manager = CheckpointManager(
            self._folder / checkpoint_list.DIRECTORY, trackables, keep=1, config=config
        )
        self._period_s = period_s
        self._saved = -math.inf
        self._best = -math.inf
        try:
            self._best = float(json.loads((self._folder / _FILE).read_text("utf-8"))["return"])
        except (OSError, ValueError, LookupError, TypeError):
            pass  # None was kept; or we cannot know how good it was.

    def offer(
        self, mean_return: float | None, frames: int, prepare: Callable[[], None], last: bool
    ) -> None:
        """Saves a checkpoint if the agent is better than any before.

        Args:
          mean_return: how good it is; None if that is not known yet.
          frames: environment frames so far.
          prepare: called before saving.
          last: whether the run ends, so that there will not be a later time.
        """
        if mean_return is None or not mean_return > self._best:
            return
        if not last and time.monotonic() - self._saved < self._period_s:
            return
        self._saved = time.monotonic()
        prepare()
        if self._manager.save(frames) is None:
            return  # It has warned, and the earlier one is intact.
        self._best = mean_return
        record = {"return": mean_return, "frames": frames}
        try:
            files.write_atomically(self._folder / _FILE, json.dumps(record) + "\n")
        except OSError as error:
            logging.warning("Cannot write %s: %s", self._folder / _FILE, error)
        logging.info("Kept the best agent so far, whose mean return is %.4g.", mean_return)
