"""Environments with Gymnasium's vector interface as a `BatchedEnv`, without a loop over them.

Gymnasium's vector environments differ in what they do at the end of an episode (`AutoresetMode`);
all are converted to the protocol of `batched_env`:

* NEXT_STEP: returns the last observation; the next step resets. The protocol does the same at a
  truncation. A terminated episode is reset at once by a partial reset; without one, it is reported
  as an end of the learner's episode whose game is truncated there, so that agents do not bootstrap
  from it and do not learn from the step that resets.
* SAME_STEP: returns the first observation of the next episode; the last one is in the infos. After
  a truncation, the step that the protocol leaves out has already happened in the new episode, which
  is therefore started again by a partial reset.
* DISABLED: does nothing. Partial resets start the next episodes.

A partial reset is `reset(options={"reset_mask": <bool>[k]})`, which Gymnasium's and ALE's
environments know; others declare it as `metadata["reset_mask"] = True`. Without it, there
are two differences: with NEXT_STEP, each terminated episode costs an extra step, which is not
learned from; with SAME_STEP, agents do not see the first step of an episode after a truncated one.
DISABLED does not work without it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces as gymnasium_spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from seed_rl.common import nest
from seed_rl.common.acting import action_masks, env_wrappers, rewards, spaces
from seed_rl.common.acting.batched_env import BatchStep, EnvironmentCall, env_seeds
from seed_rl.common.errors import UserError


class VectorEnvironment:
    """A vector environment of k environments, converted for agents (see `wrap_for_agent`).

    Scores in `info["score_reward"]`, `info["learning_episode_over"]`, `info["action_mask"]` and
    `info["is_success"]` mean the same as for single environments.

    Attributes:
      env_ids: <int32>[k] ids of the environments.
      env: the vector environment.
      truncated: <bool>[k] whether the episode is over and the next step resets it: it was
        truncated, or (where the last step had `done`) terminated without a partial reset.
      autoreset_mode: what the vector environment does at the end of an episode.
      resets_rows: whether it can reset some of its environments.
      masks: its action masks; None: it has none.
    """

    def __init__(self, env: Any, env_ids: Any, *, raw_observations: bool = False):
        """Adapts `env`.

        Args:
          env: has the interface of `gymnasium.vector.VectorEnv`.
          env_ids: ids of its environments, [k].
          raw_observations: whether to leave observations as they are.

        Raises:
          UserError: it is not a vector environment of k environments, or not a supported one.
        """
        self.env_ids = np.asarray(env_ids, np.int32)
        size = len(self.env_ids)
        self.autoreset_mode, self.resets_rows = _inspect(env, size)
        self.env = env
        self._single_space = env.single_observation_space
        self._name = f"Environments {rewards.describe_ids(self.env_ids)}"
        space = self._single_space
        self.masks = action_masks.find_masks(env, space, env.single_action_space, self._name)
        if self.masks:
            space = self.masks.observation_space
        self.observation_space = space
        self._convert: Callable[[Any], Any] = lambda value: value
        if not raw_observations:
            self.observation_space, self._convert = env_wrappers.observation_conversion(space)
        actions = env_wrappers.action_conversion(env.single_action_space)
        self.action_space, self._convert_actions = actions
        self._check_actions = spaces.action_checker(self.action_space, size)
        self._specs = spaces.specs(self.observation_space)
        self._owner = f"{self._name}: their observation"
        self._episode_step = np.zeros(size, np.int32)
        self.truncated = np.zeros(size, np.bool_)
        self._success = np.full(size, np.nan, np.float32)
        self._begun_mask: Any = None  # Masks of episodes that begin before the protocol says so.

    def reset(self, seed: int | None = None) -> Any:
        """Begins a new episode in every environment.

        Args:
          seed: seeds each environment differently; None keeps the state of their random generators.

        Returns:
          Observations, a nest of [k, ...].

        Raises:
          EnvironmentFailure: the environment raised.
          UserError: an observation is not in the declared space.
        """
        self._episode_step.fill(0)
        self.truncated.fill(False)
        observation, info = self._call("reset", seed=self._seeds(seed))
        return self._observation(observation, self._mask(observation, info))

    def step(self, action_batch: Any) -> BatchStep:
        """Applies one action per environment; `batched_env` describes the protocol.

        Args:
          action_batch: nest of actions [k, ...].

        Raises:
          EnvironmentFailure: the environment raised.
          UserError: an action or observation is not in the declared space.
        """
        actions = self._check_actions(action_batch)
        abandoned = self.truncated
        if self.autoreset_mode == AutoresetMode.DISABLED and abandoned.any():
            begun = self._reset_rows(abandoned)  # The environment does not step finished episodes.
            self._begun_mask = self._mask(*begun)
        if self.masks is not None and self._begun_mask is not None and abandoned.any():
            # The actions for last states, which the protocol ignores, are applied to new episodes.
            allowed = action_masks.allowed_actions(self.action_space, self._begun_mask)
            actions = _with_rows(actions, allowed, abandoned)
        actions = self._convert_actions(actions)
        observation, paid, terminated, truncated, info = self._call("step", actions)
        terminated = np.asarray(terminated, np.bool_) & ~abandoned
        truncated = np.asarray(truncated, np.bool_) & ~terminated & ~abandoned
        reward = rewards.numbers(self.env_ids, paid).copy()  # Changed below.
        self._episode_step += 1
        mask = self._mask(observation, info)
        raw_reward = self._given(info, "score_reward", reward)
        over = np.zeros_like(terminated)  # The learner's episode alone.
        if "learning_episode_over" in info:
            over = self._given(info, "learning_episode_over", 0.0) != 0.0
            over &= ~(terminated | truncated | abandoned)
        self._success = np.where(abandoned, self._success, self._given(info, "is_success"))
        if self.autoreset_mode == AutoresetMode.SAME_STEP and truncated.any():
            self._begun_mask = mask
            observation = _with_last(observation, self._single_space, info, truncated)
            last_mask = self._mask(observation, info.get("final_info", {}))
            mask = _with_rows(mask, last_mask, truncated)
        if self.autoreset_mode == AutoresetMode.NEXT_STEP and not self.resets_rows:
            over, truncated = over | terminated, truncated | terminated
            terminated = np.zeros_like(terminated)
        again = abandoned if self.autoreset_mode == AutoresetMode.SAME_STEP else terminated
        if self.autoreset_mode == AutoresetMode.DISABLED:
            again = abandoned | terminated
        if again.any() and self.resets_rows:
            first, first_info = self._reset_rows(again)
            observation = _with_rows(observation, first, again)
            mask = _with_rows(mask, self._mask(first, first_info), again)
        self.truncated = truncated
        self._episode_step[terminated | abandoned] = 0
        reward[abandoned] = 0.0
        raw_reward[abandoned] = 0.0
        return BatchStep(
            self._observation(observation, mask),
            reward,
            terminated | abandoned | over,
            abandoned,
            self._episode_step,
            raw_reward,
            self._success,
        )

    def close(self) -> None:
        """Closes the environments."""
        with contextlib.suppress(Exception):
            self.env.close()

    def _seeds(self, seed: int | None) -> Any:
        if seed is None:
            return None
        seeds = [s for s in env_seeds(seed, self.env_ids) if s is not None]
        base = getattr(self.env, "unwrapped", self.env)
        if isinstance(base, (SyncVectorEnv, AsyncVectorEnv)):
            return seeds
        if type(base).__module__.startswith("ale_py."):
            return np.asarray(seeds)
        return seeds[0]  # The interface guarantees no more.

    def _reset_rows(self, rows: np.ndarray) -> Any:
        """Begins new episodes in `rows` <bool>[k]; returns observations and infos of these."""
        return self._call("reset", options={"reset_mask": rows.copy()})

    def _mask(self, observation: Any, info: Mapping[str, Any]) -> Any:
        """Action masks <uint8>[k, choices]; () if there are none."""
        return self.masks.find(observation, info, len(self.env_ids)) if self.masks else ()

    def _call(self, name: str, *arguments: Any, **named: Any) -> Any:
        with EnvironmentCall(self._name, name):
            result = getattr(self.env, name)(*arguments, **named)
        info = result[-1] if isinstance(result, tuple) and result else None
        if not isinstance(info, Mapping):
            raise UserError(
                f"{self._name}: {name}() returned {type(info).__name__} as info. Return "
                "one dictionary of arrays for all environments, as gymnasium.vector.VectorEnv does."
            )
        return result

    def _observation(self, raw: Any, mask: Any) -> Any:
        """Converts the observations, and checks that they fit the space that agents see."""
        size = len(self.env_ids)
        if self.masks is not None:
            raw = self.masks.put(raw, mask, self.truncated)

        def fit(spec: spaces.ArraySpec, leaf: Any) -> np.ndarray:
            leaf = spaces.fitting(spec, leaf, self._owner, size)
            return np.ascontiguousarray(leaf, spec.dtype)

        try:
            return nest.map_structure(fit, self._specs, self._convert(raw))
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{self._owner} has a different structure than its space ({error})."
            ) from None

    def _given(self, info: Mapping[str, Any], name: str, default: Any = np.nan) -> np.ndarray:
        """Numbers <float32>[k] of an info; `default` where there are none."""
        values = np.full(len(self.env_ids), default, np.float32)
        for source in (info, info.get("final_info")):  # The latter: with SAME_STEP, at ends.
            if isinstance(source, Mapping) and name in source:
                given = np.asarray(source.get(f"_{name}", True)) & np.ones(len(values), np.bool_)
                found = np.asarray(source[name])
                if found.dtype == object:  # None: not known yet.
                    given &= np.array([value is not None for value in found])
                    found = np.array([0 if value is None else value for value in found])
                values[given] = rewards.numbers(self.env_ids, found, name)[given]
        return values


class SingleEnvironment(gymnasium.Env[Any, Any]):
    """A vector environment of size one as a single environment, for spaces and for playing."""

    def __init__(self, env: VectorEnvironment):
        """Adapts `env`, of one environment."""
        assert len(env.env_ids) == 1
        self._batch = env
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self.metadata = dict(getattr(env.env, "metadata", None) or {})
        self.render_mode = getattr(env.env, "render_mode", None)
        self._first: Any = None  # First observation of the next episode, if it has already begun.
        self._action: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        first, self._first = self._first, None
        if seed is None and first is None and self._batch.truncated[0]:
            first = self._only(self._batch.step(self._action).observation)
        if seed is not None or first is None:
            first = self._only(self._batch.reset(seed))
        return first, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """At a termination, the observation may be the first of the next episode."""
        self._action = nest.map_structure(lambda leaf: np.asarray(leaf)[np.newaxis], action)
        result = self._batch.step(self._action)
        observation = self._only(result.observation)
        over, resets = bool(result.done[0]), bool(self._batch.truncated[0])
        begun = over and int(result.episode_step[0]) == 0
        if begun:
            self._first = observation
        terminated = begun or (over and resets)
        info: dict[str, Any] = {"score_reward": float(result.raw_reward[0])}
        if result.success is not None and not np.isnan(result.success[0]):
            info["is_success"] = bool(result.success[0])
        if over and not terminated:
            info["learning_episode_over"] = True
        truncated = resets and not over
        return observation, float(result.reward[0]), terminated, truncated, info

    def render(self) -> Any:
        frames = self._batch.env.render()
        return frames[0] if frames is not None and len(frames) else frames

    def close(self) -> None:
        self._batch.close()

    @staticmethod
    def _only(observation: Any) -> Any:
        return nest.map_structure(lambda leaf: np.array(leaf[0]), observation)


def _inspect(env: Any, size: int) -> tuple[AutoresetMode, bool]:
    """The mode of `env`, and whether it can reset some of its environments."""
    name = type(env).__name__
    needed = ("reset", "step", "num_envs", "single_observation_space", "single_action_space")
    if missing := [attribute for attribute in needed if not hasattr(env, attribute)]:
        raise UserError(
            f"{name} is not a vector environment: it has no {', '.join(missing)}. It must have the "
            "interface of gymnasium.vector.VectorEnv. (A callable with a parameter num_envs must "
            "return one.)"
        )
    if env.num_envs != size:
        raise UserError(f"{name} has {env.num_envs} environments, expected {size}.")
    metadata = getattr(env, "metadata", None) or {}
    try:
        mode = AutoresetMode(metadata.get("autoreset_mode"))
    except ValueError:
        modes = ", ".join(f"AutoresetMode.{known.name}" for known in AutoresetMode)
        raise UserError(
            f"{name} does not say what it does at the end of an episode. Set its metadata"
            f'["autoreset_mode"] to one of {modes} (from gymnasium.vector).'
        ) from None
    base = getattr(env, "unwrapped", env)
    known = isinstance(base, (SyncVectorEnv, AsyncVectorEnv))
    known = known or type(base).__module__.startswith("ale_py.")
    if isinstance(base, AsyncVectorEnv) and not base.shared_memory:
        # After a partial reset, Gymnasium's workers reset once more at the next step.
        known = mode != AutoresetMode.NEXT_STEP
    resets_rows = bool(metadata.get("reset_mask", known))
    if mode == AutoresetMode.DISABLED and not resets_rows:
        raise UserError(
            f"{name} leaves resets to the caller (AutoresetMode.DISABLED). Make its reset() accept "
            'options={"reset_mask": <bool>[num_envs]}, and set metadata["reset_mask"] = True.'
        )
    return mode, resets_rows


def _with_rows(batch: Any, other: Any, rows: np.ndarray) -> Any:
    """`batch` with the `rows` <bool>[k] of `other`; both are nests of [k, ...]."""

    def merge(leaf: Any, new: Any) -> np.ndarray:
        condition = rows.reshape(-1, *[1] * (np.ndim(leaf) - 1))
        return np.where(condition, new, leaf)

    return nest.map_structure(merge, batch, other)


def _with_last(
    batch: Any, space: gymnasium_spaces.Space[Any], info: Mapping[str, Any], rows: np.ndarray
) -> Any:
    """`batch` with the last observations of the episodes that ended in `rows` <bool>[k]."""
    if "final_obs" not in info:
        raise UserError(
            "The vector environment resets in the same step (AutoresetMode.SAME_STEP), but its "
            'info has no "final_obs", from which agents learn at a time limit. Return it, or use '
            "AutoresetMode.NEXT_STEP."
        )
    result = nest.map_structure(np.array, batch)  # A copy.
    for row in np.flatnonzero(rows):
        last = _row(info["final_obs"], space, int(row))
        for leaf, value in zip(nest.flatten(result), nest.flatten(last), strict=True):
            leaf[row] = value
    return result


def _row(values: Any, space: gymnasium_spaces.Space[Any], row: int) -> Any:
    """One environment's observation: infos have nests of arrays, or arrays of nests."""
    if isinstance(space, gymnasium_spaces.Dict) and isinstance(values, Mapping):
        return {key: _row(values[key], sub, row) for key, sub in space.spaces.items()}
    if isinstance(space, gymnasium_spaces.Tuple) and isinstance(values, tuple):
        return tuple(_row(v, sub, row) for v, sub in zip(values, space.spaces, strict=True))
    return values[row]
