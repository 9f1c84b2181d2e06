"""--learning_rate_decay in a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from seed_rl import experiment
from seed_rl.common.callbacks import Callback
from seed_rl.common.config.optimizer_config import OptimizerConfig
from tests.helpers.events import read_arrays
from tests.helpers.vtrace_runs import OFTEN, make_job

START = OptimizerConfig().learning_rate


class StopSoon(Callback):
    """Ends the run at its first report after 800 frames."""

    def on_report(self, report: Any) -> None:
        if report.frames > 800:
            self.run.stop("seen enough")


@pytest.mark.slow
def test_it_falls_to_0_at_the_end_and_in_a_continued_run_at_the_new_end(tmp_path: Any) -> None:
    """Guards the schedule's unit, which is not frames, and its place when a run is resumed."""

    def logged(frames: int) -> np.ndarray:
        """[reports, 2]: frames and learning rate, after training to `frames`."""
        job = make_job(tmp_path, frames, learner={**OFTEN, "save_model": False})
        experiment.run(job, callbacks=[StopSoon()])
        return np.array(read_arrays(tmp_path)["train/learning_rate"], np.float64)

    first = logged(800)
    assert first[-1].tolist() == [800, 0]
    np.testing.assert_allclose(first[:, 1], START * (1 - first[:, 0] / 800), rtol=1e-4)
    then = logged(40_000)[len(first) :]
    assert 800 < then[-1, 0] < 40_000
    np.testing.assert_allclose(then[:, 1], START * (1 - then[:, 0] / 40_000), rtol=1e-4)
