"""Sends a run's curves to Weights & Biases, if `--wandb_project` is given.

W&B is an optional dependency, imported only here.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from pathlib import Path
from typing import Any

import numpy as np

from seed_rl.common.callbacks import Callback, Report
from seed_rl.common.errors import UserError
from seed_rl.common.monitoring import run_summary
from seed_rl.common.system import files
from seed_rl.common.system.extras import missing_extra

_ID_FILE = "wandb-run-id"
_FINISH_TIMEOUT_S = 60.0
_FRAMES = "frames"


class WandbSync(Callback):
    """One W&B run per logdir, named like it and continued each time the learner resumes.

    W&B keeps its files in LOGDIR/wandb. Failures after the start do not end the run.

    Args:
      project: name of the W&B project.
    """

    def __init__(self, project: str):
        self._project = project
        self._warned = False

    def on_start(self) -> None:
        """See `Callback`.

        Raises:
          UserError: W&B is not installed or fails (because you are not logged in, say).
        """
        try:
            import wandb
        except ImportError as error:
            raise missing_extra("wandb", "--wandb_project", error) from error
        logdir = self.run.logdir
        try:
            self._wandb = wandb.init(
                project=self._project,
                name=logdir.name,
                id=_run_id(logdir),
                resume="allow",
                dir=str(logdir),
                config=dict(run_summary.hyperparameters(self.run.options)),
                # The console belongs to learner and supervisor.
                settings=wandb.Settings(console="off", finish_timeout=_FINISH_TIMEOUT_S),
            )
        except (wandb.errors.Error, OSError) as error:
            reason = str(error).strip().split("\n", 1)[0]
            raise UserError(
                f"Cannot start a run in --wandb_project={self._project}: {reason} "
                "(WANDB_MODE=offline stores it on this machine, for `wandb sync` later.)"
            ) from error
        self._wandb.define_metric("*", step_metric=_FRAMES)
        self._histogram = wandb.Histogram

    def on_report(self, report: Report) -> None:
        try:
            curves = {name: self._curve(value) for name, value in report.metrics.items()}
            self._wandb.log({_FRAMES: report.frames, **curves})
        except Exception as error:
            if not self._warned:
                logging.warning("Weights & Biases fails (%s). Training continues.", error)
            self._warned = True

    def on_end(self, phase: str) -> None:
        """Sends pending data, for at most a minute, because the learner is exiting."""
        try:
            self._wandb.finish(exit_code=int(phase == "failed"))
        except Exception as error:  # No failure here may prevent a clean exit.
            logging.warning(
                "Some data was not sent to Weights & Biases (%s). To send it: wandb sync %s",
                error,
                self.run.logdir / "wandb" / "latest-run",
            )

    def _curve(self, value: Any) -> Any:
        return self._histogram(value) if np.ndim(value) else value


def _run_id(logdir: Path) -> str:
    """The W&B id of the run in `logdir`, possibly stored by an earlier learner."""
    path = logdir / _ID_FILE
    with contextlib.suppress(OSError):
        if kept := path.read_text(encoding="utf-8").strip():
            return kept
    new = secrets.token_hex(8)
    files.write_atomically(path, new + "\n")
    return new
