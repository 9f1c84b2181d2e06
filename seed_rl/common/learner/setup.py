"""What a learner needs: the parts of a training job."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.learner.algorithm import Algorithm
from seed_rl.common.learner.devices import Devices
from seed_rl.common.types import Specs


@dataclasses.dataclass(frozen=True)
class TrainingSetup:
    """What to train, and how.

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
      create_env: creates another environment like the actors', one for evaluation if any is; None:
        not available.
      create_env_fn: `create_env_fn(env_id, env_config)` creates an actor's environment; None: not
        available.
      env_config: passed to `create_env_fn`.
      environment: those of `options` that must match to resume a saved run.
      network: names of further `options` that must.
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
    network: frozenset[str] = frozenset()
    files: dict[str, str] = dataclasses.field(default_factory=dict)
    create_env_fn: Callable[[int, Any], Any] | None = None
    env_config: Any = None
