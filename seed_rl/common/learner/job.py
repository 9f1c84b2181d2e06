"""A training job: everything that a learner needs, ready to be trained or played."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from seed_rl.common.config import logdirs
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.options import from_flags
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError
from seed_rl.common.learner.algorithm import Algorithm
from seed_rl.common.learner.devices import Devices
from seed_rl.common.run_files import run_record, saved_run
from seed_rl.common.system.files import write_atomically
from seed_rl.common.types import Specs

if TYPE_CHECKING:
    from seed_rl.common.learner.learner import Learner

CreateOptimizer = Callable[[int], tuple[tf.keras.optimizers.Optimizer, Callable[[Any], Any]]]
"""`create_optimizer(final_iteration)` returns (optimizer, learning_rate_fn)."""


@dataclasses.dataclass(frozen=True)
class TrainingJob:
    """What to train, and how. Created by the `create_job` of an agent.

    Attributes:
      run: options shared with the actors.
      config: options of the learner.
      devices: what runs where.
      algorithm: created in the scope of the training strategy.
      specs: of one environment.
      optimizer: created in the scope of the training strategy.
      learning_rate_fn: optimizer step -> learning rate, for logs.
      clip_norm: maximum global norm of the gradients; None: no clipping.
      options: all options by name, stored with checkpoints.
      action_space: of one environment; actors compare it with their own. None: no check.
      create_env: creates another environment like the actors'; None: not available.
      create_env_fn: `create_env_fn(env_id, env_config)` creates an actor's environment; None: not
        available.
      env_config: passed to `create_env_fn`.
      environment: those of `options` that must match to resume a saved run.
      files: texts to write to the logdir when training starts, by file name.
    """

    run: RunConfig
    config: LearnerConfig
    devices: Devices
    algorithm: Algorithm
    specs: Specs
    optimizer: tf.keras.optimizers.Optimizer
    learning_rate_fn: Callable[[Any], Any]
    clip_norm: float | None
    options: dict[str, Any]
    action_space: Any = None
    create_env: Callable[[], Any] | None = None
    environment: dict[str, Any] = dataclasses.field(default_factory=dict)
    files: dict[str, str] = dataclasses.field(default_factory=dict)
    create_env_fn: Callable[[int, Any], Any] | None = None
    env_config: Any = None

    def execute(self) -> None:
        """Trains; or plays, if `python -m seed_rl.play` started the program (`--play_request`).

        Raises:
          UserError: see `train`.
        """
        if request := self._play_request():
            from seed_rl.common.learner import playing

            playing.play(self, playing.PlayRequest.from_json(request))
        else:
            self.train()

    def train(self) -> None:
        """Trains until all frames are used, or SIGTERM or SIGINT.

        Raises:
          SystemExit: stopped before all frames are used, if there is a `stopped_exit_code`.
          UserError: incompatible options, a logdir that is unwritable or in use by another learner,
            a checkpoint of another agent, an unusable or unprotected server address, or training
            that stalls.
          NotSavedError: the last checkpoint could not be written.
        """
        learner = self.create_learner()
        learner.train()
        if self.run.stopped_exit_code and not learner.finished:
            raise SystemExit(self.run.stopped_exit_code)

    def create_learner(self, learner_class: type[Learner] | None = None) -> Learner:
        """Creates the learner, resuming the run saved in the logdir, if any.

        Args:
          learner_class: a subclass of `Learner`; None for `Learner` itself.

        Raises:
          UserError: as `train`.
        """
        if self._play_request():
            raise UserError("This program calls `train`, which cannot play; let it call `execute`.")

        from seed_rl.common.learner.learner import Learner

        self.run.check_exposure()
        logdirs.check(self.run.logdir)
        saved_run.check(self.run.logdir, self.environment)
        job = dataclasses.replace(self, options=run_record.describe(self.options))
        run_record.log_options(job.options)
        learner = (learner_class or Learner)(job)
        try:
            run_record.write(self.run.logdir, job.options)
            for name, text in self.files.items():
                write_atomically(os.path.join(self.run.logdir, name), text)
        except OSError as error:
            logging.warning("Cannot record the options in %s: %s", self.run.logdir, error)
        return learner

    def _play_request(self) -> str:
        # The flag counts even if the program built its own RunConfig: it must not train.
        return self.run.play_request or from_flags(RunConfig).play_request
