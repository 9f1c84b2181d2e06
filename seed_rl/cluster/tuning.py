"""What a trial of Google's hyperparameter tuning reports: a file that the service reads.

Each line is a JSON object with the metric's name and value; the service's own package
(`cloudml-hypertune`) writes the same.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from seed_rl.common.run_files import progress
from seed_rl.common.system import files

METRIC = "episode_return"
_FILE = "/tmp/hypertune/output.metrics"
_MOST_LINES = 100  # The service only reads the last ones.


def trial_from(environment: Mapping[str, str]) -> str | None:
    """The id of this trial; None if this job is not a trial."""
    return environment.get("CLOUD_ML_TRIAL_ID") or None


class Reporter:
    """Reports the mean return of recent training episodes.

    Args:
      environment: variables of a trial.
    """

    def __init__(self, environment: Mapping[str, str]):
        self._path = Path(environment.get("CLOUD_ML_HP_METRIC_FILE") or _FILE)
        self._trial = trial_from(environment)
        self._lines: deque[str] = deque(maxlen=_MOST_LINES)
        self._frames = -1

    def report(self, logdir: Path) -> None:
        """Adds a line if the return has changed; failures are logged.

        Args:
          logdir: of the learner.
        """
        last = progress.read(logdir)
        if last is None or last.episode_return_mean is None or last.frames == self._frames:
            return
        self._frames = last.frames
        line = {
            "timestamp": time.time(),
            "trial": str(self._trial),
            METRIC: str(last.episode_return_mean),
            "global_step": str(last.frames),
            "checkpoint_path": "",
        }
        self._lines.append(json.dumps(line, sort_keys=True) + "\n")
        try:
            os.makedirs(self._path.parent, exist_ok=True)
            files.write_atomically(self._path, "".join(self._lines))
        except OSError as error:
            logging.warning("Cannot report to the tuning service in %s: %s", self._path, error)
