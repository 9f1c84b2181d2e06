"""Copies a run's TensorBoard summaries to Weights & Biases, for those who ask for it.

W&B is an extra: it is imported only here, and only where `--wandb_project` is given. It reads what
`metrics.SummaryWriter` writes, so there is nothing to log twice.
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
    """One W&B run for one logdir, however often the learner is stopped and resumed.

    Make it before the files of TensorBoard: W&B notices which ones are opened.

    Args:
      project: name of the project in W&B.
      logdir: an existing directory; its name is that of the run. W&B keeps its files in
        `logdir`/wandb.
      options: that the run is described by.

    Raises:
      UserError: W&B is not installed, or refuses (nobody is logged in, say).
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
        # The values, not the files: those are large, and links to them would be further runs in
        # TensorBoard.
        patches.patch(save=False, root_logdir=str(logdir))
        try:
            self._run = wandb.init(
                project=project,
                name=logdir.name,
                id=_run_id(logdir),
                resume="allow",
                dir=str(logdir),
                config=dict(options),
                # Learner and supervisor own the console and its log.
                settings=wandb.Settings(console="off", finish_timeout=_FINISH_TIMEOUT_S),
            )
        except (wandb.errors.Error, OSError) as error:
            patches.unpatch()
            reason = str(error).strip().split("\n", 1)[0]
            raise UserError(
                f"Cannot begin a run of --wandb_project={project}: {reason} "
                "(WANDB_MODE=offline keeps it on this machine, for `wandb sync` later.)"
            ) from error

    def close(self) -> None:
        """Sends what is not sent yet; for no more than a minute, as the learner has to end."""
        try:
            self._run.finish()
        except Exception as error:  # noqa: BLE001 - Of whatever kind, it must cost no checkpoint.
            logging.warning(
                "Weights & Biases has not got everything (%s). To send it: wandb sync %s",
                error,
                self._logdir / "wandb" / "latest-run",
            )
        self._unpatch()


def _run_id(logdir: Path) -> str:
    """Of the run in `logdir`, which may have begun in an earlier life."""
    path = logdir / _ID_FILE
    with contextlib.suppress(OSError):
        if kept := path.read_text(encoding="utf-8").strip():
            return kept
    new = secrets.token_hex(8)
    files.write_atomically(path, new + "\n")
    return new
