"""Assembles a training job for any agent."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from seed_rl.common.config import learner_config
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.config.options import (
    environment_identity,
    flag_values,
    from_flags,
    network_options,
)
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError
from seed_rl.common.inference import env_specs
from seed_rl.common.learner.algorithm import Algorithm
from seed_rl.common.learner.devices import Devices, make_devices
from seed_rl.common.learner.job import CreateOptimizer, TrainingJob
from seed_rl.common.learner.optimizer import create_optimizer
from seed_rl.common.system import memory
from seed_rl.common.types import Spaces, Specs


@dataclasses.dataclass(frozen=True)
class AlgorithmContext:
    """What an algorithm may need when it is created.

    Attributes:
      run: options shared with the actors.
      config: options of the learner.
      spaces: (observation, action) of one environment.
      specs: their tensor specs.
    """

    run: RunConfig
    config: LearnerConfig
    spaces: Spaces
    specs: Specs


def make_job(
    create_env_fn: Callable[[int, Any], Any],
    create_algorithm: Callable[[AlgorithmContext], Algorithm],
    create_optimizer_fn: CreateOptimizer | None = None,
    *,
    env_config: Any = None,
    run: RunConfig | None = None,
    config: LearnerConfig | None = None,
    optimizer: OptimizerConfig | None = None,
    device_config: DeviceConfig | None = None,
    devices: Devices | None = None,
    agent_options: Sequence[Any] = (),
) -> TrainingJob:
    """Creates devices, algorithm and optimizer.

    Options that are not given come from the program's flags.

    Args:
      create_env_fn: `create_env_fn(env_id, env_config)` returns an environment; called once here,
        for its spaces.
      create_algorithm: called in the scope of the training strategy.
      create_optimizer_fn: `create_optimizer_fn(final_iteration)` returns (optimizer,
        learning_rate_fn); by default, `optimizer` configures one.
      env_config: passed to `create_env_fn`.
      run: options shared with the actors.
      config: options of the learner.
      optimizer: options of the default optimizer, and of gradient clipping.
      device_config: what runs where.
      devices: what runs where, if the program has chosen itself.
      agent_options: dataclasses of the agent's options, stored with checkpoints.

    Raises:
      UserError: options that are incompatible with each other, the environment or this machine.
    """
    run = run or from_flags(RunConfig)
    config = config or from_flags(LearnerConfig)
    optimizer = optimizer or from_flags(OptimizerConfig)
    devices = devices or make_devices(device_config or from_flags(DeviceConfig))
    strategy = devices.training_strategy
    learner_config.validate(run, config, strategy.num_replicas_in_sync)
    if run.seed is not None:
        tf.keras.utils.set_random_seed(run.seed)
    spaces = env_specs.probe_spaces(create_env_fn, env_config)
    context = AlgorithmContext(run, config, spaces, env_specs.specs(*spaces))
    make_optimizer = create_optimizer_fn or functools.partial(create_optimizer, optimizer)
    _check_memory(config, context.specs)
    with strategy.scope():
        algorithm = create_algorithm(context)
        steps = config.final_train_step(run) * algorithm.updates_per_unroll
        keras_optimizer, learning_rate_fn = make_optimizer(max(1, round(steps)))
    identity = environment_identity(env_config)
    # To play in: for evaluation, if any is. Some environments hold levels out for it.
    played = run.num_envs - run.num_eval_envs if run.num_eval_envs else 0
    own = create_optimizer_fn is not None
    used = _options_of_own(optimizer, learning_rate_fn) if own else flag_values(optimizer)
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
        create_env=lambda: create_env_fn(played, env_config),
        environment=identity,
        network=network_options(run, config, optimizer, *agent_options),
        create_env_fn=create_env_fn,
        env_config=env_config,
    )


def _check_memory(config: LearnerConfig, specs: Specs) -> None:
    """Refuses batches that do not fit in memory, rather than let TensorFlow fail to allocate them.

    Raises:
      UserError: names the options to lower.
    """
    leaves = tf.nest.flatten(specs.env_output)
    step = sum(leaf.shape.num_elements() * max(leaf.dtype.size, 1) for leaf in leaves)
    batch = step * (config.unroll_length + 1) * config.batch_size
    available = memory.available_bytes()
    if batch > available:
        raise UserError(
            f"A batch of --batch_size={config.batch_size:,} unrolls of --unroll_length="
            f"{config.unroll_length:,} steps takes {batch / 1e9:,.1f} GB, and "
            f"{available / 1e9:,.1f} GB are available. Lower one of them."
        )


def _options_of_own(
    optimizer: OptimizerConfig, learning_rate_fn: Callable[[Any], Any]
) -> dict[str, Any]:
    """What is recorded of an optimizer that the program made, by the names of `OptimizerConfig`."""
    learning_rate = optimizer.learning_rate
    used = np.float32(learning_rate_fn(0))
    if used != np.float32(learning_rate):
        learning_rate = float(str(used))  # As short as it was written.
    return {"learning_rate": learning_rate, "clip_norm": optimizer.clip_norm}
