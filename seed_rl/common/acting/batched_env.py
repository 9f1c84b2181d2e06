"""Environments stepped in one batch, with the episode protocol of central inference.

Each step reports, per environment, the results of the previous action:

* An episode that *terminates* is reset in the same step: `done` comes with the last reward and
  with the first observation of the next episode.
* An episode that is *truncated* (by a time limit) would have continued, so the learner should
  bootstrap from its end. Its last observation is reported as an ordinary step without `done`, whose
  action is ignored; the next step reports the first observation of the next episode with `done`,
  `abandoned` and reward 0. Meanwhile the other environments of the batch step as usual.
* An environment may end only the *learner's* episode, for example when one of several lives is
  lost. `done` then comes with the next observation of the same game and an `episode_step` above 0.
  Central inference counts returns and lengths over the whole game.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium.error import DependencyNotInstalled

from seed_rl.common import nest
from seed_rl.common.acting import env_adapters, rewards, spaces
from seed_rl.common.errors import UserError
from seed_rl.common.system.extras import missing_dependency


class BatchStep(NamedTuple):
    """What k environments report after a step. The next step overwrites the arrays.

    Attributes:
      observation: nest of [k, ...].
      reward: <float32>[k] of the previous action; 0 where `abandoned`.
      done: <bool>[k] the previous action ended the episode; `observation` is from the next one, or
        from the same game if `episode_step` is not 0.
      abandoned: <bool>[k] the episode that ended was truncated; implies `done`.
      episode_step: <int32>[k] steps since the environment was last reset.
      raw_reward: <float32>[k] the unshaped reward (`info["score_reward"]`) if given, else the
        reward.
      success: <float32>[k] whether the episode has reached its goal (`info["is_success"]` of its
        last step, also with `done`); NaN: the environment does not report it. None: no environment
        does.
    """

    observation: Any
    reward: np.ndarray
    done: np.ndarray
    abandoned: np.ndarray
    episode_step: np.ndarray
    raw_reward: np.ndarray
    success: np.ndarray | None = None


class BatchedEnv(Protocol):
    """k environments that follow the episode protocol, as the actor loop needs them."""

    @property
    def env_ids(self) -> np.ndarray:
        """<int32>[k] ids of the environments."""

    @property
    def observation_space(self) -> Any:
        """Observation space of one environment."""

    @property
    def action_space(self) -> Any:
        """Action space of one environment."""

    def reset(self, seed: int | None = None) -> Any:
        """Resets all environments and returns the observations, a nest of [k, ...]."""

    def step(self, action_batch: Any) -> BatchStep:
        """Applies a nest of actions [k, ...]."""

    def close(self) -> None:
        """Closes the environments."""


class EnvironmentFailure(Exception):
    """An environment raised or called `sys.exit()`; its exception is the cause."""


class EnvironmentCall:
    """Context manager around a call of an environment.

    Raises:
      EnvironmentFailure: the environment raised or called `sys.exit()`.
      UserError: it raised a UserError, or needs a package that is not installed.
    """

    def __init__(self, owner: str, method: str):
        """For calls of `method` on the environment (or environments) `owner`."""
        self._owner, self._method = owner, method

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        if not isinstance(error, (Exception, SystemExit)) or isinstance(error, UserError):
            return
        if isinstance(error, DependencyNotInstalled):
            raise missing_dependency(error) from error
        did = "called sys.exit()" if isinstance(error, SystemExit) else "raised"
        raise EnvironmentFailure(f"{self._owner} {did} in {self._method}().") from error


def env_seeds(seed: int | None, env_ids: np.ndarray) -> list[int | None]:
    """A different seed for each environment, derived from `seed`; all None if it is None."""
    if seed is None:
        return [None] * len(env_ids)
    sequences = [np.random.SeedSequence([seed, int(i)]) for i in env_ids]
    return [int(sequence.generate_state(1)[0] >> 1) for sequence in sequences]


def playing_seed(seed: int | None) -> int | None:
    """The seed for measuring an agent that may have trained with `seed`: of other episodes."""
    if seed is None:
        return None
    return int(np.random.SeedSequence([seed, 0, 1]).generate_state(1)[0] >> 1)


class BatchedEnvironment:
    """Single Gymnasium (or old gym) environments as a `BatchedEnv`."""

    def __init__(
        self,
        create_env_fn: Callable[[int, Any], Any],
        batch_size: int,
        id_offset: int | np.ndarray,
        config: Any = None,
    ):
        """Creates the environments.

        Args:
          create_env_fn: `create_env_fn(env_id, config)` returns an environment.
          batch_size: number of environments, k.
          id_offset: id of the first one; or the ids of all, <int32>[k].
          config: passed to `create_env_fn`.

        Raises:
          UserError: a space does not consist of arrays of fixed shape, or the environments have
            different spaces.
        """
        ids = np.asarray(id_offset, np.int32)
        self._env_ids = ids if ids.ndim else ids + np.arange(batch_size, dtype=np.int32)
        self._envs: list[Any] = []
        try:
            for env_id in self._env_ids:
                self._envs.append(env_adapters.as_gymnasium(create_env_fn(int(env_id), config)))
            self._check_spaces()
        except BaseException:
            self.close()
            raise
        self.observation_space = self._envs[0].observation_space
        self.action_space = self._envs[0].action_space
        self._observations = spaces.BatchBuffer(spaces.specs(self.observation_space), batch_size)
        self._split_actions = spaces.action_splitter(self.action_space, batch_size)
        names = [f"Environment {env_id}" for env_id in self._env_ids]
        self._owners = [f"{name}: its observation" for name in names]
        self._reset_calls = [EnvironmentCall(name, "reset") for name in names]
        self._step_calls = [EnvironmentCall(name, "step") for name in names]
        self._reward = np.zeros(batch_size, np.float32)
        self._raw_reward = np.zeros(batch_size, np.float32)
        self._success = np.full(batch_size, np.nan, np.float32)
        self._done = np.zeros(batch_size, np.bool_)
        self._abandoned = np.zeros(batch_size, np.bool_)
        self._episode_step = np.zeros(batch_size, np.int32)
        # Environments whose episode was truncated; the next step resets them.
        self._truncated = [False] * batch_size

    @property
    def env_ids(self) -> np.ndarray:
        """<int32>[k] ids of the environments."""
        return self._env_ids

    @property
    def envs(self) -> list[Any]:
        """The k environments, each adapted to Gymnasium's interface."""
        return self._envs

    def reset(self, seed: int | None = None) -> Any:
        """Begins a new episode in every environment.

        Args:
          seed: seeds each environment differently; None keeps the state of their random generators.

        Returns:
          Observations, a nest of [k, ...].

        Raises:
          EnvironmentFailure: an environment raised.
          UserError: an observation is not in the declared space.
        """
        for row, env_seed in enumerate(env_seeds(seed, self._env_ids)):
            self._reset(row, env_seed)
        return self._observations.batch

    def step(self, action_batch: Any) -> BatchStep:
        """Applies one action per environment; the module docstring describes the protocol.

        Args:
          action_batch: nest of actions [k, ...].

        Raises:
          EnvironmentFailure: an environment raised.
          UserError: an action or observation is not in the declared space, or a reward is not a
            number.
        """
        self._done.fill(False)
        self._abandoned.fill(False)
        self._episode_step += 1
        for row, action in enumerate(self._split_actions(action_batch)):
            if self._truncated[row]:
                self._reward[row] = self._raw_reward[row] = 0.0
                self._done[row] = self._abandoned[row] = True
                self._reset(row)
            else:
                self._step(row, action)
        return BatchStep(
            self._observations.batch,
            self._reward,
            self._done,
            self._abandoned,
            self._episode_step,
            self._raw_reward,
            self._success,
        )

    def reset_if_done(self, done: Any) -> Any:
        """The current observations; `step` has already reset the done environments."""
        del done
        return self._observations.batch

    def render(self, mode: str = "human", **kwargs: Any) -> Any:
        """Renders the first environment; `mode` is old gym's, Gymnasium sets it at creation."""
        env = self._envs[0]
        if isinstance(env, env_adapters.OldGymAdapter):
            return env.render(mode)
        return env.render(**kwargs)

    def close(self) -> None:
        """Closes all environments, even if some raise."""
        for env in self._envs:
            with contextlib.suppress(Exception):
                env.close()
        self._envs = []

    def _check_spaces(self) -> None:
        """Refuses environments whose observations or actions would not fit the same arrays."""
        found = []
        for env in self._envs:
            spaces.specs(env.action_space, "action")
            observations = nest.map_structure(str, spaces.specs(env.observation_space))
            found.append((observations, spaces.describe(env.action_space)))
        for env_id, other in zip(self._env_ids, found, strict=True):
            if other != found[0]:
                raise UserError(
                    f"Environment {env_id} has observations {other[0]} and actions {other[1]}, but "
                    f"environment {self._env_ids[0]} has {found[0][0]} and {found[0][1]}. All "
                    "environments of a run must have the same spaces: pad what varies."
                )

    def _reset(self, row: int, seed: int | None = None) -> None:
        with self._reset_calls[row]:
            observation, _ = self._envs[row].reset(seed=seed)
        self._truncated[row] = False
        self._episode_step[row] = 0
        self._observations.write(row, observation, self._owners[row])

    def _step(self, row: int, action: Any) -> None:
        with self._step_calls[row]:
            observation, reward, terminated, truncated, info = self._envs[row].step(action)
            self._reward[row] = self._raw_reward[row] = rewards.number(reward, self._env_ids[row])
            if "score_reward" in info:
                score = rewards.number(info["score_reward"], self._env_ids[row], "score_reward")
                self._raw_reward[row] = score
            success = info.get("is_success")
            if success is not None:
                success = rewards.number(success, self._env_ids[row], "is_success")
            self._success[row] = np.nan if success is None else success
            self._done[row] = bool(terminated or info.get("learning_episode_over", False))
        if terminated:
            self._reset(row)
            return
        self._truncated[row] = bool(truncated)
        self._observations.write(row, observation, self._owners[row])
