"""A training job: everything that a learner needs, put together, to be trained or played."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.options import from_flags
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError
from seed_rl.common.learner.algorithm import Algorithm
from seed_rl.common.learner.devices import Devices
from seed_rl.common.run_files import run_record, saved_run
from seed_rl.common.types import Specs

CreateOptimizer = Callable[[int], tuple[tf.keras.optimizers.Optimizer, Callable[[Any], Any]]]
"""`create_optimizer(final_iteration)` returns (optimizer, learning_rate_fn)."""


@dataclasses.dataclass(frozen=True)
class TrainingJob:
    """What to train, and with what. Made by the `create_job` of an agent.

    Attributes:
      run: options shared with the actors.
      config: options of the learner.
      devices: what runs where.
      algorithm: made in the scope of the training strategy.
      specs: of one environment.
      optimizer: made in the scope of the training strategy.
      learning_rate_fn: optimizer step -> learning rate, for logs.
      clip_norm: largest global norm of the gradients; None: no clipping.
      options: all options by name, to be written with checkpoints.
      action_space: of one environment, which actors compare with theirs; None: they do not.
      create_env: makes one more environment like the actors'; None if there is no way to.
      environment: those of `options` that a saved run must share to be continued.
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

    def execute(self) -> None:
        """Trains; or plays, if `python -m seed_rl.play` started the program (`--play`).

        Raises:
          UserError: see `train`.
        """
        if request := self._play_request():
            from seed_rl.common.learner import playing

            playing.play(self, playing.PlayRequest.from_json(request))
        else:
            self.train()

    def train(self) -> None:
        """Trains until the frames are used up or the process is told to stop.

        Raises:
          UserError: options that do not fit together, an unwritable logdir or one where another
            learner works, a checkpoint of another agent, an unusable server address, or a training
            that stalls.
          NotSavedError: the last checkpoint could not be written.
        """
        if self._play_request():
            raise UserError("This program calls `train`, which cannot play; let it call `execute`.")

        from seed_rl.common.learner.learner import Learner

        saved_run.check(self.run.logdir, self.environment)
        job = dataclasses.replace(self, options=run_record.describe(self.options))
        run_record.log_options(job.options)
        learner = Learner(job)
        try:
            run_record.write(self.run.logdir, job.options)
        except OSError as error:
            logging.warning("Cannot write config.json to %s: %s", self.run.logdir, error)
        learner.train()

    def _play_request(self) -> str:
        # The flag counts even if the program made a RunConfig of its own: it must not train.
        return self.run.play or from_flags(RunConfig).play
