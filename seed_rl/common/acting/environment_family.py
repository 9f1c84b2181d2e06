"""Environment families, such as Atari, as the programs see them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable


@dataclasses.dataclass(frozen=True)
class EnvironmentFamily:
    """Creates a program's environments and defines their options.

    Attributes:
      config: dataclass of the options, which become flags.
      create: `create(env_id, config)` returns a Gymnasium (or old gym) environment.
      create_batch: `create_batch(env_ids, config)` returns a `BatchedEnv` of all environments of
        an actor, or None to have `create` called for each.
      environment: name of the option that selects the environment, if there are several; its value
        becomes part of the default --logdir.
      check: `check(config)` raises `UserError` for an environment that does not exist, before
        anything starts, and without creating it; None: nothing is checked then.
      images: whether observations are images, so that learners mostly compute convolutions.
    """

    config: type
    create: Callable[[int, Any], Any]
    create_batch: Callable[[Any, Any], Any] | None = None
    environment: str | None = None
    check: Callable[[Any], None] | None = None
    images: bool = False

    def prepare_tensorflow(self) -> None:
        """Chooses how TensorFlow computes; has no effect once it is imported.

        On x86 processors without VNNI or AMX, TensorFlow leaves oneDNN unused, although training
        steps with convolutions are about twice as fast with it.
        """
        if self.images:
            os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


@runtime_checkable
class Tasks(Protocol):
    """Tells which task each environment plays, and how tasks are scored.

    If the options of the environments (`EnvironmentFamily.config`) have these methods, the learner
    reports each task separately.
    """

    def task_of(self, env_id: int) -> str | None:
        """The task of an environment, for display; None if the run has only one."""

    def task_score(self, task: str, mean_return: float) -> float | None:
        """Score in percent that makes tasks comparable; None if there is no such scale.

        Args:
          task: result of `task_of`.
          mean_return: mean unshaped return of episodes of the task.
        """
