"""Environments of an actor that step together, and their pending call.

An actor with several groups steps one while the others wait for their actions.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from seed_rl.common.acting import rewards
from seed_rl.common.acting.batched_env import (
    BatchedEnv,
    BatchedEnvironment,
    BatchStep,
    EnvironmentFailure,
)
from seed_rl.common.errors import UserError
from seed_rl.common.types import EnvOutput
from seed_rl.grpc.numpy_client import Function

CreateBatch = Callable[[np.ndarray, Any], BatchedEnv | None]


@dataclasses.dataclass(frozen=True)
class Environments:
    """How actors create their environments.

    Attributes:
      create: `create(env_id, config)` returns a Gymnasium (or old gym) environment.
      config: passed to `create` and `create_batch`.
      create_batch: `create_batch(env_ids, config)` returns all environments of an actor as one
        `BatchedEnv`, or None to have `create` called for each.
    """

    create: Callable[[int, Any], Any]
    config: Any = None
    create_batch: CreateBatch | None = None


class EnvGroup:
    """Environments with one call per step."""

    def __init__(self, env: BatchedEnv):
        self.env = env
        self._env_ids = np.asarray(env.env_ids, np.int32)
        # First observations of episodes in which no step has been taken yet.
        self._fresh_observation: Any = None
        self._call: Callable[[], Any] | None = None

    def reset(self, seed: int | None) -> None:
        """Resets the environments unless they are at the start of an episode already."""
        if self._fresh_observation is None:
            self._fresh_observation = self.env.reset(seed=seed)

    def begin(self, inference: Function, run_id: int) -> None:
        """Begins a life: sends the first observations.

        Args:
          inference: the learner's function.
          run_id: number of the life.
        """
        size = len(self._env_ids)
        self._inference = inference
        self._run_ids = np.full(size, run_id, np.int64)
        zeros, false = np.zeros(size, np.float32), np.zeros(size, np.bool_)
        steps = np.zeros(size, np.int32)
        first = EnvOutput(zeros, false, self._fresh_observation, false, steps)
        self._report = first, zeros, np.full(size, np.nan, np.float32)
        self.send()

    def actions(self) -> Any:
        """Waits for the actions of the last call.

        Raises:
          ClientError: the call failed.
        """
        call, self._call = self._call, None
        assert call is not None
        return call()

    def step(self, actions: Any) -> None:
        """Steps the environments; `send` must follow.

        Raises:
          EnvironmentFailure, UserError: an environment raised, or returned invalid data.
        """
        self._fresh_observation = None
        step = BatchStep(*self.env.step(actions))
        reward = rewards.numbers(self._env_ids, step.reward)
        raw_reward = rewards.numbers(self._env_ids, step.raw_reward, "raw_reward")
        success = step.success
        if success is None:
            success = np.full(len(self._env_ids), np.nan, np.float32)
        self._report = (
            EnvOutput(reward, step.done, step.observation, step.abandoned, step.episode_step),
            raw_reward,
            success,
        )

    def send(self) -> None:
        """Sends the last step to the learner, which answers with `actions`.

        Raises:
          ClientError: the connection is lost.
        """
        arguments = (self._env_ids, self._run_ids, *self._report)
        # Inference functions of programs written for the original do not take successes.
        taken = len(self._inference.arguments)
        self._call = self._inference.start(*arguments[:taken])


@contextlib.contextmanager
def env_groups(
    environments: Environments, env_ids: np.ndarray, num_groups: int
) -> Iterator[list[EnvGroup]]:
    """Creates the environments of an actor, and closes them at the end.

    Args:
      environments: how.
      env_ids: <int32>[k].
      num_groups: number of groups of equal size.

    Raises:
      EnvironmentFailure: an environment raised.
      UserError: an environment cannot be used, or k is not divisible by `num_groups`.
    """
    if len(env_ids) % num_groups:
        raise UserError(
            f"--env_groups={num_groups} does not divide --env_batch_size={len(env_ids)}; choose a "
            "divisor."
        )
    with contextlib.ExitStack() as stack:
        groups = []
        for ids in np.split(env_ids, num_groups):
            env = create(environments, ids)
            stack.callback(env.close)
            groups.append(EnvGroup(env))
        yield groups


def create(made: Environments, env_ids: np.ndarray) -> BatchedEnv:
    """Creates the environments with the ids `env_ids` <int32>[k].

    Raises:
      EnvironmentFailure: they could not be created.
      UserError: they cannot be used.
    """
    try:
        if made.create_batch is not None:
            env = made.create_batch(env_ids, made.config)
            if env is not None:
                return env
        return BatchedEnvironment(made.create, len(env_ids), env_ids, made.config)
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise EnvironmentFailure(
            f"Environments {rewards.describe_ids(env_ids)} could not be created."
        ) from error
