"""The on-policy learner as programs written for the original import it.

Importing this module defines the learner's flags, which such programs do not define themselves. The
algorithm's parts come from the current gin configuration; if the program has none, from the flags
`gin_config` and `gin_bindings`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from seed_rl.agents.policy_gradient.algorithm import CreateLoss
from seed_rl.common.acting import local_actors
from seed_rl.common.acting.batched_env import BatchedEnvironment
from seed_rl.common.acting.env_group import Environments
from seed_rl.common.acting.local_actors import LocalActors
from seed_rl.common.config.distribution_config import ContinuousDistributionConfig
from seed_rl.common.errors import UserError
from seed_rl.common.inference.inference import initialize
from seed_rl.common.learner import playing, variables
from seed_rl.common.learner.algorithm import CreateAgent
from seed_rl.common.learner.job import CreateOptimizer, TrainingJob
from seed_rl.common.run_files import checkpoint_list, saved_flags
from seed_rl.common.types import Unroll
from seed_rl.compat.agents.policy_gradient import learner_flags
from seed_rl.compat.agents.policy_gradient.eval_utils import EpisodeInfo, Evaluator
from seed_rl.compat.agents.policy_gradient.job import (
    LearnerState,
    SaveActionPoint,
    Settings,
    Snapshot,
    TrainingHost,
    TrainingResult,
    make_job,
    validate_config,
)
from seed_rl.compat.agents.policy_gradient.learner_config import TrainingConfig
from seed_rl.compat.programs import CreateEnv
from seed_rl.compat.stepped_learner import SteppedLearner

__all__ = [
    "EVALUATION",
    "Learner",
    "LearnerState",
    "SaveActionPoint",
    "Snapshot",
    "TrainingHost",
    "TrainingResult",
    "Unroll",
    "learner_loop",
    "validate_config",
]

EVALUATION = "evaluation"
"""`eval_name` of the episodes of `Learner.run_eval`."""


def learner_loop(
    create_env_fn: CreateEnv,
    create_agent_fn: CreateAgent,
    create_optimizer_fn: CreateOptimizer | None = None,
    config: TrainingConfig | None = None,
    settings: Settings | None = None,
    action_distribution_config: ContinuousDistributionConfig | None = None,
) -> None:
    """Trains until all frames are used, or SIGTERM or SIGINT.

    Args:
      create_env_fn: `create_env_fn(env_id, env_config)` returns an environment.
      create_agent_fn: `create_agent_fn(action_space, observation_space,
        parametric_action_distribution)` returns the network, in either call form.
      create_optimizer_fn: `create_optimizer_fn(final_iteration)` returns (optimizer,
        learning_rate_fn); None: as `OptimizerConfig` of the gin configuration says.
      config: options; None: those of the flags.
      settings: devices, from `utils.init_learner_multi_host` or `utils.init_learner`; None: those
        of `config`.
      action_distribution_config: options of continuous actions; None: as `continuous_action_config`
        of the gin configuration says.

    Raises:
      UserError: options that are incompatible with each other, the environment or this machine.
    """
    if config is None:
        saved_flags.adopt_saved_run()
        config = learner_flags.training_config_from_flags()
    arguments = (create_env_fn, create_agent_fn, create_optimizer_fn, config, settings)
    make_job(*arguments, None, action_distribution_config).execute()


class Learner:
    """A learner in pieces, for programs that train, evaluate and save in an order of their own.

    Usage:

        learner = Learner(create_env_fn, create_agent_fn, create_optimizer_fn, settings, config)
        learner.prepare_for_run(logdir)
        learner.run_training()     # or minimize_loop, run_eval, save_checkpoint ...
        learner.finalize()
    """

    def __init__(
        self,
        create_env_fn: CreateEnv,
        create_agent_fn: CreateAgent,
        create_optimizer_fn: CreateOptimizer | None,
        settings: Settings | None,
        config: TrainingConfig,
        create_loss_fn: CreateLoss | None = None,
        action_distribution_config: ContinuousDistributionConfig | None = None,
    ):
        """Keeps the arguments, which are those of `learner_loop`; `prepare_for_run` uses them.

        `create_loss_fn(network, distribution)` returns a `GeneralizedOnPolicyLoss`; None: as the
        gin configuration says.
        """
        self._makers = (create_env_fn, create_agent_fn, create_optimizer_fn)
        self._settings = settings
        self._config = config
        self._parts = (create_loss_fn, action_distribution_config)
        self._job: TrainingJob | None = None
        self._host: TrainingHost | None = None
        self._actors: LocalActors | None = None

    def prepare_for_run(
        self,
        logdir: str | None = None,
        init_checkpoint: str | None = None,
        restore_latest_checkpoint: bool = True,
        reuse_summary_writer: bool = False,
        init_server: bool = True,
    ) -> None:
        """Creates what trains, and resumes the run saved in the logdir, if any.

        Args:
          logdir: of the run; None: that of the configuration.
          init_checkpoint: whose weights a new run starts with; None: that of the configuration.
          restore_latest_checkpoint: False refuses a logdir with a saved run.
          reuse_summary_writer: has no effect: every run has its own writer, and those of one logdir
            make one curve in TensorBoard.
          init_server: whether to start serving now; otherwise the first training step does.

        Raises:
          UserError: `finalize` has not ended the run before; or see `learner_loop`.
        """
        del reuse_summary_writer
        if self._host is not None:
            raise UserError("This Learner is still in a run: call `finalize` before the next.")
        config = dataclasses.replace(
            self._config,
            logdir=logdir or self._config.logdir,
            init_checkpoint=init_checkpoint or self._config.init_checkpoint,
        )
        if not restore_latest_checkpoint and _has_checkpoint(config.logdir):
            raise UserError(
                f"{config.logdir} holds a saved run: choose another logdir, or move it."
            )
        self._job = make_job(*self._makers, config, self._settings, *self._parts)
        learner = self._job.create_learner(SteppedLearner)
        assert isinstance(learner, SteppedLearner)
        self._host = TrainingHost(self._job.devices, learner)
        if init_server:
            self.init_server()

    def init_server(self) -> None:
        """Starts serving actors, unless it does already."""
        self._learner.serve()

    def start_actor_loops(self) -> None:
        """Starts the run's actors as threads of this process; those of an earlier call end first.

        Raises:
          UserError: `num_envs` is not a multiple of `env_batch_size`.
          Exception: see `stop_actor_loops`.
        """
        job = self._prepared
        environments = Environments(job.create_env_fn, job.env_config)
        self.stop_actor_loops()
        self.init_server()
        self._actors = LocalActors(
            local_actors.THREADS,
            environments,
            local_actors.actor_configs(job.run),
            lambda: self._learner.stop("An actor failed"),
        )
        self._actors.start()

    def stop_actor_loops(self) -> None:
        """Ends the actors of `start_actor_loops`.

        Raises:
          Exception: whatever ended one of them before.
        """
        actors, self._actors = self._actors, None
        if actors is not None:
            actors.stop()
            if actors.error is not None:
                raise actors.error

    def run_training(self) -> TrainingResult:
        """Trains to the end of the run, with checkpoints from time to time.

        Returns:
          One snapshot, of the end.
        """
        self._learner.run()
        return TrainingResult([Snapshot(self._learner.train_steps, self.get_state_fn()())])

    def minimize(self) -> dict[str, tf.Tensor] | None:
        """Waits for experience and takes a training step, of all epochs and minibatches.

        Returns:
          Metrics <float32>[] by name; None if a stop ended the wait.
        """
        return self._learner.step()

    def minimize_loop(self, iterations: int) -> None:
        """Takes training steps, as many as are asked for unless the run ends before."""
        for _ in range(iterations):
            if self.done():
                break
            self.minimize()

    def create_dataset(self) -> Iterator[Any]:
        """Endless batches, each as `pull_batch_from_unroll_queue` returns them."""
        while True:
            yield self.pull_batch_from_unroll_queue()

    def pull_batch_from_unroll_queue(self) -> Any:
        """Waits for the batch of a training step and takes it; it will not be trained on.

        Returns:
          `Unroll`s of [time + 1, batch, ...]; on several replicas, for each.
        """
        return self._learner.pull()

    def run_eval(
        self, num_episodes: int, deterministic_inference: bool = False
    ) -> Sequence[EpisodeInfo]:
        """Plays episodes with the current weights, in an environment of this process.

        Their means are logged, and written to the default writer of `tf.summary` if a step is set.

        Args:
          num_episodes: how many.
          deterministic_inference: whether to act as evaluation environments do (with the mode of
            the distribution), rather than as training environments do.

        Returns:
          The episodes, whose `eval_name` is "evaluation".
        """
        job = self._prepared
        policy = playing.trained_policy(job, sampled=not deterministic_inference)
        env = BatchedEnvironment(lambda index, _: job.create_env(index), 1, 0)
        with contextlib.closing(env):
            episodes = playing.play_episodes(env, policy, job.run.seed, num_episodes)
            infos = [
                EpisodeInfo(EVALUATION, e.steps * job.run.num_action_repeats, e.reward, e.score)
                for e in episodes
            ]
        evaluator = Evaluator(print_episode_summaries=False)
        for info in infos:
            evaluator.add(info)
        evaluator.process(tf.summary.experimental.get_step() is not None)
        return infos

    def build_new_agent(self) -> tf.Module:
        """Another network of the same architecture, with initial weights."""
        job = self._prepared
        network = job.algorithm.make_network()
        initialize(job.algorithm, network, job.specs)
        return network

    def random_agent_variables(self) -> list[np.ndarray]:
        """The values of the variables of `build_new_agent`."""
        return [variable.numpy() for variable in variables.variables(self.build_new_agent())]

    def get_state_fn(self) -> Callable[[], LearnerState]:
        """A function without arguments that returns what is trained."""
        job = self._prepared
        loss = job.algorithm.checkpointables()["loss"]
        return lambda: LearnerState(job.algorithm.network, loss, job.optimizer)

    def generate_save_action_steps(self) -> list[SaveActionPoint]:
        """The training steps after which something is certainly saved: the last.

        Until then, checkpoints are saved by the clock (`save_checkpoint_secs`).
        """
        config = self._prepared.config
        steps = config.final_train_step(self._prepared.run)
        return [SaveActionPoint(steps, config.save_model, snapshot=True, checkpoint=True)]

    def copy_to_inference_variables(self) -> None:
        """Gives the newest weights to the inference devices, as each training step does."""
        self._learner.copy_weights()

    def save_checkpoint(self) -> None:
        """Saves a checkpoint now; a failure is reported as a warning."""
        self._learner.save()

    def save_model(self, directory: str | None = None, eval_id: int | None = -1) -> None:
        """Exports the policy, for `seed_rl.experiment.load_policy`.

        Args:
          directory: None: `saved_model` in the logdir.
          eval_id: if it is not negative, the name of a folder within `directory`.
        """
        target = directory and Path(directory)
        if eval_id is not None and eval_id >= 0:
            target = Path(directory or os.path.join(self._prepared.run.logdir, "models"))
            target = target / str(eval_id)
            target.parent.mkdir(parents=True, exist_ok=True)
        self._learner.export(target or None)

    def additional_logs(self) -> dict[str, Any]:
        """Learning rate, and what else is logged besides the metrics of training steps."""
        return self._learner.logs()

    def done(self) -> bool:
        """Whether all frames are used, or a stop was requested."""
        return self._learner.done

    def finalize(self) -> None:
        """Ends actors and server, and saves as `learner_loop` does; then another run may begin.

        Raises:
          NotSavedError: the last checkpoint could not be written.
        """
        learner, self._host = self._learner, None
        try:
            self.stop_actor_loops()
        finally:
            learner.close()

    @property
    def _learner(self) -> SteppedLearner:
        self._prepared  # noqa: B018 - raises.
        assert self._host is not None
        return self._host.learner

    @property
    def _prepared(self) -> TrainingJob:
        if self._job is None or self._host is None:
            raise UserError("Call `prepare_for_run` first.")
        return self._job


def _has_checkpoint(logdir: str) -> bool:
    return bool(checkpoint_list.list_checkpoints(Path(logdir) / checkpoint_list.DIRECTORY))
