"""Copies a run's TensorBoard summaries to Weights & Biases, if `--wandb_project` is given.

W&B is an optional dependency, imported only here. It reads what `metrics.SummaryWriter` writes, so
nothing is logged twice.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seed_rl.common.errors import UserError
from seed_rl.common.system import files
from seed_rl.common.system.extras import missing_extra

_ID_FILE = "wandb-run-id"
_FINISH_TIMEOUT_S = 60.0


class WandbSync:
    """One W&B run per logdir, continued each time the learner resumes.

    Create it before TensorBoard's files: W&B watches which ones are opened.

    Args:
      project: name of the W&B project.
      logdir: an existing directory; its name becomes that of the run. W&B keeps its files in
        `logdir`/wandb.
      options: the run's options by name, shown as its config.

    Raises:
      UserError: W&B is not installed or fails (because you are not logged in, say).
    """

    def __init__(self, project: str, logdir: str | os.PathLike[str], options: Mapping[str, Any]):
        try:
            import wandb
            from wandb.integration import tensorboard as patches
        except ImportError as error:
            raise missing_extra("wandb", "--wandb_project", error) from error
        logdir = Path(logdir).absolute()
        self._logdir = logdir
        self._unpatch = patches.unpatch
        # Sync the values, not the files: those are large, and W&B's links to them would appear as
        # further runs in TensorBoard.
        patches.patch(save=False, root_logdir=str(logdir))
        try:
            self._run = wandb.init(
                project=project,
                name=logdir.name,
                id=_run_id(logdir),
                resume="allow",
                dir=str(logdir),
                config=dict(options),
                # The console belongs to learner and supervisor.
                settings=wandb.Settings(console="off", finish_timeout=_FINISH_TIMEOUT_S),
            )
        except (wandb.errors.Error, OSError) as error:
            patches.unpatch()
            reason = str(error).strip().split("\n", 1)[0]
            raise UserError(
                f"Cannot start a run in --wandb_project={project}: {reason} "
                "(WANDB_MODE=offline stores it on this machine, for `wandb sync` later.)"
            ) from error

    def close(self) -> None:
        """Sends pending data, for at most a minute, because the learner is exiting."""
        try:
            self._run.finish()
        except Exception as error:  # No failure here may prevent a clean exit.
            logging.warning(
                "Some data was not sent to Weights & Biases (%s). To send it: wandb sync %s",
                error,
                self._logdir / "wandb" / "latest-run",
            )
        self._unpatch()


def _run_id(logdir: Path) -> str:
    """The W&B id of the run in `logdir`, possibly stored by an earlier learner."""
    path = logdir / _ID_FILE
    with contextlib.suppress(OSError):
        if kept := path.read_text(encoding="utf-8").strip():
            return kept
    new = secrets.token_hex(8)
    files.write_atomically(path, new + "\n")
    return new
