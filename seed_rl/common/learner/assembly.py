"""Puts a learner together: what the `learner_loop` of every agent does, whatever the agent."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from seed_rl.common.config import learner_config
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.config.options import (
    environment_identity,
    environment_options,
    flag_values,
    from_flags,
)
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.inference import env_specs
from seed_rl.common.learner import devices
from seed_rl.common.learner.algorithm import Algorithm
from seed_rl.common.learner.learner import CreateOptimizer, TrainingJob, train
from seed_rl.common.learner.optimizer import create_optimizer
from seed_rl.common.types import Specs


@dataclasses.dataclass(frozen=True)
class AlgorithmContext:
    """What an algorithm is made for.

    Attributes:
      run: options shared with the actors.
      config: options of the learner.
      observation_space: of one environment.
      action_space: likewise.
      specs: the same spaces as tensors.
    """

    run: RunConfig
    config: LearnerConfig
    observation_space: Any
    action_space: Any
    specs: Specs


def learn(
    create_env_fn: Callable[[int, Any], Any],
    create_algorithm: Callable[[AlgorithmContext], Algorithm],
    create_optimizer_fn: CreateOptimizer | None = None,
    *,
    env_config: Any = None,
    run: RunConfig | None = None,
    config: LearnerConfig | None = None,
    optimizer: OptimizerConfig | None = None,
    device_config: DeviceConfig | None = None,
    agent_options: Sequence[Any] = (),
) -> None:
    """Makes devices, algorithm and optimizer, then trains.

    Args:
      create_env_fn: `create_env_fn(env_id, env_config)` returns an environment, made once to
        learn its spaces.
      create_algorithm: called in the scope of the training strategy.
      create_optimizer_fn: `create_optimizer_fn(final_iteration)` returns (optimizer,
        learning_rate_fn); by default as `optimizer` says.
      env_config: passed on to `create_env_fn`; the program's flags if not given.
      run: options shared with the actors. Like the next three, those from the program's flags if
        not given.
      config: options of the learner.
      optimizer: options of the default optimizer, and the gradient clipping.
      device_config: what runs where.
      agent_options: dataclasses of further options, to be written beside checkpoints.

    Raises:
      UserError: options that do not fit together, the environment or this machine.
    """
    run = run or from_flags(RunConfig)
    config = config or from_flags(LearnerConfig)
    optimizer = optimizer or from_flags(OptimizerConfig)
    env_config = environment_options(env_config)
    placement = devices.make_devices(device_config or from_flags(DeviceConfig))
    strategy = placement.training_strategy
    learner_config.validate(run, config, strategy.num_replicas_in_sync)
    if run.seed is not None:
        tf.keras.utils.set_random_seed(run.seed)
    spaces = env_specs.probe_spaces(create_env_fn, env_config)
    setting = AlgorithmContext(run, config, *spaces, env_specs.specs(*spaces))
    make_optimizer = create_optimizer_fn or functools.partial(create_optimizer, optimizer)
    with strategy.scope():
        algorithm = create_algorithm(setting)
        steps = config.final_train_step(run) * algorithm.updates_per_unroll
        keras_optimizer, learning_rate_fn = make_optimizer(max(1, round(steps)))
    identity = environment_identity(env_config)
    trained = TrainingJob(
        algorithm,
        keras_optimizer,
        learning_rate_fn,
        optimizer.clip_norm,
        {**identity, **flag_values(run, config, optimizer, *agent_options)},
        setting.action_space,
        lambda: create_env_fn(0, env_config),
        identity,
    )
    train(run, config, placement, trained, setting.specs)
