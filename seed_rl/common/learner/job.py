"""A training job: everything that a learner needs, ready to be trained or played."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from seed_rl.common import remote_callbacks
from seed_rl.common.acting import environment_process
from seed_rl.common.acting.environment_process import EnvironmentRequest
from seed_rl.common.callbacks import Callback, StopAtReturn
from seed_rl.common.checkpoints.best import BestCheckpoint
from seed_rl.common.config import learner_config, logdirs
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.distribution_config import ContinuousDistributionConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.config.options import (
    environment_identity,
    flag_values,
    from_flags,
    network_options,
)
from seed_rl.common.config.run_config import ACTOR, RunConfig
from seed_rl.common.errors import UserError
from seed_rl.common.inference import env_specs
from seed_rl.common.learner import playing, policy_server
from seed_rl.common.learner.algorithm import Algorithm, AlgorithmContext, CreateAgent
from seed_rl.common.learner.collective_learner import CollectiveLearner
from seed_rl.common.learner.devices import Devices, make_devices
from seed_rl.common.learner.learner import Learner
from seed_rl.common.learner.optimizer import create_optimizer
from seed_rl.common.learner.several_learners import (
    Exchange,
    check_same,
    failing_at_once,
    others_alive,
)
from seed_rl.common.monitoring.wandb_sync import WandbSync
from seed_rl.common.run_files import progress, run_record, saved_run
from seed_rl.common.system import memory
from seed_rl.common.system.files import write_atomically
from seed_rl.common.types import Specs

CreateOptimizer = Callable[[int], tuple[tf.keras.optimizers.Optimizer, Callable[[Any], Any]]]
"""`create_optimizer(final_iteration)` returns (optimizer, learning_rate_fn)."""


@dataclasses.dataclass(frozen=True)
class TrainingJob:
    """What to train, and how. Created by the `create_job` of an agent, with `make_job`.

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
      action_space: of one environment; actors compare it with their own.
      environment: the `options` of the environment, which must match to resume a saved run.
      network: names of further `options` that must match.
      create_env_fn: `create_env_fn(env_id, env_config)` creates an actor's environment.
      env_config: passed to `create_env_fn`.
      callbacks: called by the learner, or by the first of several learners.
      learners: how many train together.
      learner_index: of this one among them.
      jit: `DeviceConfig.jit`.
      gradient_steps: environment frames -> gradient steps that take place until then, with the
        sizes of this job.
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
    action_space: Any
    environment: dict[str, Any]
    network: frozenset[str]
    create_env_fn: Callable[[int, Any], Any]
    env_config: Any
    callbacks: Sequence[Callback]
    learners: int
    learner_index: int
    jit: str
    gradient_steps: Callable[[int], int]
    files: dict[str, str] = dataclasses.field(default_factory=dict)

    def execute(self) -> None:
        """Trains; or plays or serves, if `seed_rl.play` or `seed_rl.serve` started the program.

        Raises:
          UserError: see `train`.
        """
        request = _play_request(self.run)
        if not request:
            self.train()
        elif policy_server.ServeRequest.is_in(request):
            policy_server.serve(self, policy_server.ServeRequest.from_json(request))
        elif from_flags(RunConfig).run_mode != ACTOR:
            playing.play(self, playing.PlayRequest.from_json(request))
        else:  # The program has no actors of its own.
            environment_process.serve(self.create_env, EnvironmentRequest.from_json(request))

    def create_env(self, index: int = 0) -> Any:
        """Creates the environment in which to play as the `index`-th."""
        return self.create_env_fn(self.run.played_env_id(index), self.env_config)

    def train(self) -> None:
        """Trains until all frames are used, or SIGTERM or SIGINT.

        Raises:
          SystemExit: stopped before all frames are used, if there is a `stopped_exit_code`.
          UserError: incompatible options, a logdir that is unwritable or in use by another learner,
            a checkpoint of another agent, an unusable or unprotected server address, or training
            that stalls.
          NotSavedError: the last checkpoint could not be written.
        """
        with failing_at_once() if self.learners > 1 else contextlib.nullcontext():
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
        if _play_request(self.run):
            raise UserError(
                "This program calls `job.train()`, which cannot play. Call `job.execute()` instead."
            )
        if self.algorithm.start_frames is not None:
            raise UserError(
                "This job has had a learner, and its network is trained: create a new job for each "
                "run. With the same logdir, it continues from the last checkpoint."
            )

        self.run.check_exposure()
        logdirs.check(self.run.logdir)
        options = {
            **self.options,
            run_record.DEVICES: self.devices.describe(self.algorithm.network),
        }
        job = dataclasses.replace(
            self,
            options=run_record.describe(options),
            callbacks=(*_built_in(self.config), *self.callbacks, *remote_callbacks.of_caller()),
        )
        saved_run.check(self.run.logdir, self.environment, job.options, self.network)
        run_record.log_options(job.options)
        # The run's record is the first learner's; others, with another seed, record in theirs.
        saved = saved_run.record(self.run.logdir) if self.learner_index == 0 else None
        if saved and (changes := saved_run.changes(saved, job.options)):
            logging.warning("The run continues with other options: %s.", "; ".join(changes))
        if self.learners > 1:
            if learner_class is not None:
                raise UserError(f"{learner_class.__name__} cannot be one of several learners.")
            job, learner_class = job.part(), CollectiveLearner
        learner = (learner_class or Learner)(job)
        try:
            run_record.write(job.run.logdir, job.options)
            for name, text in self.files.items():
                write_atomically(os.path.join(job.run.logdir, name), text)
        except OSError as error:
            logging.warning("Cannot record the options in %s: %s", self.run.logdir, error)
        return learner

    def part(self) -> TrainingJob:
        """The job of one of several learners: its share of each batch, in its own directory."""
        config = dataclasses.replace(
            self.config,
            batch_size=self.config.batch_size // self.learners,
            save_model=self.config.save_model and self.learner_index == 0,
        )
        if not self.learner_index:
            return dataclasses.replace(self, config=config)
        logdir = os.path.join(self.run.logdir, progress.LEARNERS.format(index=self.learner_index))
        run = dataclasses.replace(self.run, logdir=logdir)
        config = dataclasses.replace(config, video_every=0)
        return dataclasses.replace(self, run=run, config=config, callbacks=())


def make_job(
    create_env_fn: Callable[[int, Any], Any],
    create_agent_fn: CreateAgent,
    create_algorithm: Callable[[AlgorithmContext], Algorithm],
    create_optimizer_fn: CreateOptimizer | None = None,
    *,
    continuous: ContinuousDistributionConfig | None = None,
    env_config: Any = None,
    run: RunConfig | None = None,
    config: LearnerConfig | None = None,
    optimizer: OptimizerConfig | None = None,
    device_config: DeviceConfig | None = None,
    devices: Devices | None = None,
    agent_options: Sequence[Any] = (),
    replay_ratio: int = 0,
    callbacks: Sequence[Callback] = (),
) -> TrainingJob:
    """Creates devices, algorithm and optimizer.

    Options that are not given come from the program's flags.

    Args:
      create_env_fn: `create_env_fn(env_id, env_config)` returns an environment; called once here,
        for its spaces.
      create_agent_fn: see `algorithm.CreateAgent`.
      create_algorithm: called in the scope of the training strategy.
      create_optimizer_fn: `create_optimizer_fn(final_iteration)` returns (optimizer,
        learning_rate_fn); by default, `optimizer` configures one.
      continuous: options of continuous actions.
      env_config: passed to `create_env_fn`.
      run: options shared with the actors.
      config: options of the learner.
      optimizer: options of the default optimizer, and of gradient clipping.
      device_config: what runs where.
      devices: what runs where, if the program has chosen that itself.
      agent_options: dataclasses of the agent's options, stored with checkpoints.
      replay_ratio: replayed unrolls per new one in a training step.
      callbacks: called by the learner.

    Raises:
      UserError: options that are incompatible with each other, the environment or this machine.
    """
    run = run or from_flags(RunConfig)
    config = config or from_flags(LearnerConfig)
    optimizer = optimizer or from_flags(OptimizerConfig)
    device_config = device_config or from_flags(DeviceConfig)
    request = _play_request(run)
    if request and not policy_server.ServeRequest.is_in(request):
        device_config = DeviceConfig("cpu:0", "cpu:0")  # A training run may be using the GPU.
    device_config.check_learners(config.batch_size, run.insecure)
    run = dataclasses.replace(run, seed=device_config.own_seed(run.seed))
    if devices is None:
        devices = make_devices(device_config)
    strategy = devices.training_strategy
    learner_config.validate(run, config, strategy.num_replicas_in_sync)
    if run.seed is not None:
        tf.keras.utils.set_random_seed(run.seed)
    spaces = env_specs.probe_spaces(create_env_fn, env_config)
    learners, index = device_config.learners, device_config.learner_index
    context = AlgorithmContext(run, config, spaces, create_agent_fn, continuous, learners)
    make_optimizer = create_optimizer_fn or functools.partial(create_optimizer, config=optimizer)
    _check_memory(config, context.specs, replay_ratio, learners)
    identity = environment_identity(env_config)
    if learners > 1:
        own = [o for o in agent_options if not isinstance(o, LearnerConfig)]
        shared = {**identity, **flag_values(optimizer, *own), **_shared(run, config)}
        check_same(Exchange(strategy, index, learners), shared)
    with strategy.scope(), others_alive() if learners > 1 else contextlib.nullcontext():
        algorithm = create_algorithm(context)
        gradient_steps = functools.partial(_gradient_steps, run, config, algorithm, learners)
        final = gradient_steps(config.total_environment_frames)
        keras_optimizer, learning_rate_fn = make_optimizer(max(1, final))
    used = flag_values(optimizer)
    if create_optimizer_fn is not None:
        used = _options_of_own(optimizer, learning_rate_fn)
    return TrainingJob(
        run=run,
        config=config,
        devices=devices,
        algorithm=algorithm,
        specs=context.specs,
        optimizer=keras_optimizer,
        learning_rate_fn=learning_rate_fn,
        clip_norm=optimizer.clip_norm,
        options={**identity, **used, **flag_values(run, config, *agent_options)},
        action_space=spaces.action,
        environment=identity,
        network=network_options(run, config, optimizer, *agent_options),
        create_env_fn=create_env_fn,
        env_config=env_config,
        callbacks=callbacks,
        learners=learners,
        learner_index=index,
        jit=device_config.jit,
        gradient_steps=gradient_steps,
    )


def _play_request(run: RunConfig) -> str:
    # The flag counts even if the program built its own RunConfig: the program must not train.
    return run.play_request or from_flags(RunConfig).play_request


def _gradient_steps(
    run: RunConfig, config: LearnerConfig, algorithm: Algorithm, learners: int, frames: int
) -> int:
    """See `TrainingJob.gradient_steps`."""
    unused = algorithm.unrolls_before_training * learners / config.batch_size
    batches = math.ceil(frames / config.frames_per_step(run)) - unused
    return max(0, round(batches * algorithm.updates_per_batch))


def _built_in(config: LearnerConfig) -> Iterator[Callback]:
    """The callbacks that options ask for."""
    if config.wandb_project:
        yield WandbSync(config.wandb_project)
    if config.keep_best:
        yield BestCheckpoint()
    if config.stop_at_return is not None:
        yield StopAtReturn(config.stop_at_return)


def _shared(run: RunConfig, config: LearnerConfig) -> dict[str, Any]:
    """The options that several learners must agree on, besides the agent's."""
    values = flag_values(run, config)
    names = "num_action_repeats", "batch_size", "unroll_length", "total_environment_frames"
    return {name: values[name] for name in names}


def _check_memory(config: LearnerConfig, specs: Specs, replay_ratio: int, learners: int) -> None:
    """Refuses batches that do not fit in memory, rather than let TensorFlow fail to allocate them.

    Raises:
      UserError: names the options to lower.
    """
    leaves = tf.nest.flatten(specs.env_output)
    step = sum(leaf.shape.num_elements() * max(leaf.dtype.size, 1) for leaf in leaves)
    unrolls = config.batch_size // learners * (1 + replay_ratio)
    batch = step * (config.unroll_length + 1) * unrolls
    available = memory.available_bytes()
    if batch > available:
        replayed = f" and --replay_ratio={replay_ratio:,} times as many" if replay_ratio else ""
        raise UserError(
            f"A batch of --batch_size={config.batch_size:,} unrolls{replayed} of --unroll_length="
            f"{config.unroll_length:,} steps takes {batch / 1e9:,.1f} GB, and "
            f"{available / 1e9:,.1f} GB are available. Lower one of them."
        )


def _options_of_own(
    optimizer: OptimizerConfig, learning_rate_fn: Callable[[Any], Any]
) -> dict[str, Any]:
    """What is recorded of a program's own optimizer, by the names of `OptimizerConfig`."""
    learning_rate = optimizer.learning_rate
    used = np.float32(learning_rate_fn(0))
    if used != np.float32(learning_rate):
        learning_rate = float(str(used))  # With the digits that it was written with.
    return {"learning_rate": learning_rate, "clip_norm": optimizer.clip_norm}
