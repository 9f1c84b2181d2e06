"""Jobs and tuples of the on-policy learner."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import gin
import tensorflow as tf
from absl import flags

from seed_rl.agents.policy_gradient import gin_config, gin_options, gin_record
from seed_rl.agents.policy_gradient.algorithm import CreateLoss, create_job
from seed_rl.agents.policy_gradient.config import MinibatchSettings, OnPolicyConfig
from seed_rl.common.config import learner_config
from seed_rl.common.config.distribution_config import ContinuousDistributionConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.learner.algorithm import CreateAgent
from seed_rl.common.learner.devices import Devices
from seed_rl.common.learner.job import CreateOptimizer, TrainingJob
from seed_rl.compat import programs
from seed_rl.compat.agents.policy_gradient.learner_config import TrainingConfig
from seed_rl.compat.devices import MultiHostSettings
from seed_rl.compat.stepped_learner import SteppedLearner

Settings = Devices | MultiHostSettings
_SHIPPED = {
    **{"learning_rate": 3e-4, "clip_norm": 0.5, "mlp_activation": "tanh"},
    **{"normalize_observations": True, "action_std_for_zero_param": 0.5},
}
"""What our gin configs for MuJoCo set before their settings became options, where they differ."""


class LearnerState(NamedTuple):
    """What is trained.

    Attributes:
      training_agent: the network.
      loss_fn: with the trained parts of the loss; a `GeneralizedOnPolicyLoss`.
      optimizer: with its state.
    """

    training_agent: tf.Module
    loss_fn: tf.Module
    optimizer: tf.keras.optimizers.Optimizer


class Snapshot(NamedTuple):
    """The learner after some training steps. The state is not a copy: it keeps changing.

    Attributes:
      steps_done: training steps.
      learner_state: a `LearnerState`.
    """

    steps_done: int
    learner_state: LearnerState


class TrainingResult(NamedTuple):
    """What `Learner.run_training` returns.

    Attributes:
      snapshots: list of `Snapshot`s; the last one is that of the end.
    """

    snapshots: list[Snapshot]


class SaveActionPoint(NamedTuple):
    """What is saved after a training step.

    Attributes:
      step: number of training steps done.
      model: whether the policy is exported.
      snapshot: whether the result of the training has a `Snapshot` of it.
      checkpoint: whether a checkpoint is saved.
    """

    step: int
    model: bool
    snapshot: bool
    checkpoint: bool


@dataclasses.dataclass(frozen=True)
class TrainingHost:
    """What runs on the learner's machine; there is only one.

    Attributes:
      devices: for training and inference.
      learner: trains and serves.
    """

    devices: Devices
    learner: SteppedLearner


def validate_config(config: TrainingConfig, settings: Settings) -> None:
    """Checks the options together.

    Raises:
      UserError: naming the options to change.
    """
    replicas = settings.training_strategy.num_replicas_in_sync
    sized = config.with_sizes()
    batch = sized.batch_size * sized.batches_per_step or sized.num_training_envs()
    learner = sized.part(LearnerConfig, batch_size=batch)
    learner_config.validate(sized.part(RunConfig), learner, replicas)


def make_job(
    create_env_fn: programs.CreateEnv,
    create_agent_fn: CreateAgent,
    create_optimizer_fn: CreateOptimizer | None,
    config: TrainingConfig,
    settings: Settings | None,
    create_loss_fn: CreateLoss | None,
    continuous: ContinuousDistributionConfig | None,
) -> TrainingJob:
    """The job of a program's functions and options, with the parts of the gin configuration.

    The arguments are those of `learner.Learner`; `continuous` is `action_distribution_config`.

    Raises:
      UserError: options that are incompatible with each other, the environment or this machine.
    """
    saved = gin_record.saved_config(config.logdir)
    settled = gin_options.NOTHING
    if not gin.config_str().strip():
        settings_of_shipped = gin_options.of_preset(_SHIPPED) if config.gin_config else {}
        loaded = gin_record.load(config, saved, settings_of_shipped)
        settled = loaded._replace(instead={})  # The program has no such flags.
    devices = settings.together() if isinstance(settings, MultiHostSettings) else settings
    create_env_fn, env_config = programs.with_typed_options(create_env_fn, None)
    with gin_config.errors_for_users():
        job = create_job(
            create_env_fn,
            create_agent_fn,
            create_optimizer_fn,
            create_loss=create_loss_fn or gin_config.create_loss,
            on_policy=config.part(OnPolicyConfig),
            settings=config.part(MinibatchSettings),
            continuous=continuous or gin_config.continuous_action_config(),
            optimizer=_optimizer_config(create_optimizer_fn),
            run=config.part(RunConfig),
            config=config.part(LearnerConfig, batch_size=1),  # `create_job` replaces it.
            device_config=config,
            devices=devices,
            env_config=env_config,
        )
    return gin_record.record(job, saved, settled)


def _optimizer_config(create_optimizer_fn: CreateOptimizer | None) -> OptimizerConfig:
    """Options of the optimizer; with the program's own, gradients are clipped only if asked to.

    --clip_norm on the command line wins over the gin config, which wins over the flag's default.
    """
    flag = flags.FLAGS["clip_norm"] if "clip_norm" in flags.FLAGS else None
    config = gin_config.optimizer_config()
    by_gin = create_optimizer_fn is None or "clip_norm" in gin_config.bindings("OptimizerConfig")
    if by_gin and (flag is None or not flag.present):
        return config
    return dataclasses.replace(config, clip_norm=None if flag is None else flag.value)
