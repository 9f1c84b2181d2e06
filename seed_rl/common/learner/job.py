"""A training job: everything that a learner needs, ready to be trained or played."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from seed_rl.common.acting import environment_process
from seed_rl.common.acting.environment_process import EnvironmentRequest
from seed_rl.common.config import logdirs
from seed_rl.common.config.options import from_flags
from seed_rl.common.config.run_config import ACTOR, RunConfig
from seed_rl.common.errors import UserError
from seed_rl.common.learner import playing
from seed_rl.common.learner.learner import Learner
from seed_rl.common.learner.setup import TrainingSetup
from seed_rl.common.run_files import run_record, saved_run
from seed_rl.common.system.files import write_atomically

CreateOptimizer = Callable[[int], tuple[tf.keras.optimizers.Optimizer, Callable[[Any], Any]]]
"""`create_optimizer(final_iteration)` returns (optimizer, learning_rate_fn)."""


class TrainingJob(TrainingSetup):
    """A `TrainingSetup` to be trained or played. Created by the `create_job` of an agent."""

    def execute(self) -> None:
        """Trains; or plays, if `python -m seed_rl.play` started the program (`--play_request`).

        Raises:
          UserError: see `train`.
        """
        request = self._play_request()
        if not request:
            self.train()
        elif from_flags(RunConfig).run_mode != ACTOR:
            playing.play(self, playing.PlayRequest.from_json(request))
        elif self.create_env is not None:  # The program has no actors of its own.
            environment_process.serve(self.create_env, EnvironmentRequest.from_json(request))

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

        self.run.check_exposure()
        logdirs.check(self.run.logdir)
        job = dataclasses.replace(self, options=run_record.describe(self.options))
        saved_run.check(self.run.logdir, self.environment, job.options, self.network)
        run_record.log_options(job.options)
        saved = saved_run.record(self.run.logdir)
        if saved and (changes := saved_run.changes(saved, job.options)):
            logging.warning("The run continues with other options: %s.", "; ".join(changes))
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
