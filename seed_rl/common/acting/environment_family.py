"""A family of environments as the programs see it (no TensorFlow here)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class EnvironmentFamily:
    """How to make the environments of a program, and their options.

    Attributes:
      config: dataclass of the options, which become flags.
      create: `create(env_id, config)` returns a Gymnasium (or old gym) environment.
      create_batch: `create_batch(env_ids, config)` returns a `BatchedEnv` of all environments of
        an actor, or None to have `create` called for each.
      environment: name of the option that says which of the environments it is, where there are
        several; it becomes part of the default --logdir.
    """

    config: type
    create: Callable[[int, Any], Any]
    create_batch: Callable[[Any, Any], Any] | None = None
    environment: str | None = None
