"""Checks a single environment against what actors and learners rely on (no TensorFlow here)."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from seed_rl.check_env.findings import Findings, Unusable
from seed_rl.check_env.goal_check import GoalCheck
from seed_rl.check_env.space_check import check_spaces
from seed_rl.common import nest
from seed_rl.common.acting import action_masks, env_adapters, env_wrappers, rewards
from seed_rl.common.acting import spaces as space_lib
from seed_rl.common.errors import UserError
from seed_rl.common.types import LARGEST

_SEED = 1


@dataclasses.dataclass
class Episodes:
    """What was seen of episodes that ended."""

    lengths: list[int] = dataclasses.field(default_factory=list)
    terminated: list[int] = dataclasses.field(default_factory=list)
    looped: list[bool] = dataclasses.field(default_factory=list)


class Contract:
    """Plays an environment with random actions, and checks everything that it returns.

    Attributes:
      masks: its action masks; None: it has none, or they are not known yet.
    """

    def __init__(self, env: Any, findings: Findings, timeout_s: float, raw: bool):
        """Adapts `env`, a Gymnasium (or old gym) environment, not wrapped for agents.

        Args:
          env: the environment.
          findings: where faults are added.
          timeout_s: after which a call counts as hanging.
          raw: whether agents see its observations as they are (`--raw_observations`).
        """
        self.findings = findings
        self.episodes = Episodes()
        self._timeout_s = timeout_s
        self._raw = raw
        with findings.of("Reading its spaces", timeout_s):
            self.env = env_adapters.as_gymnasium(env)
            self.env.action_space.seed(_SEED)
            space = self.env.observation_space
            self.masks: action_masks.ActionMasks | None = None
            self._mask: Any = None  # What the last observation allows.
            self._random = np.random.default_rng(_SEED)
            self._goals = GoalCheck(self.env, space, findings, timeout_s)
        self._calls = itertools.count(1)

    def check(self, steps: int, make: Callable[[], Any]) -> None:
        """Everything but speed and memory, in at most `steps` + 600 steps.

        Args:
          steps: at least so many with random actions.
          make: creates another such environment.

        Raises:
          Unusable: the environment failed.
        """
        check_spaces(self.env.observation_space, self.env.action_space, self.findings)
        self._find_masks()
        alone = self._check_seed(min(steps, 200))
        if alone and self.masks is None:  # Which actions the other one allows would not be known.
            self._check_beside_another(make, alone)
        self._play(steps)
        self._goals.check_batch()
        self._judge_episodes(steps)

    def reset(self, seed: int | None = None) -> Any:
        """A checked reset; returns the observation."""
        with self.findings.of("reset()", self._timeout_s):
            result = self.env.reset(seed=seed)
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
            self.findings.must(
                "reset_result",
                f"reset() returned {_kind(result)} instead of a pair (observation, info).",
                "The actor fails at its first reset.",
                "Return observation, {} (a dictionary as info).",
            )
            raise Unusable
        self._check_observation(result[0], "reset()")
        self._check_mask(*result, False, "reset()")
        return result[0]

    def step(self, action: Any) -> tuple[Any, float, bool, bool]:
        """A checked step: observation, reward, terminated, truncated."""
        call = f"step() number {next(self._calls)}"
        with self.findings.of(call, self._timeout_s):
            result = self.env.step(action)
        if not (isinstance(result, tuple) and len(result) == 5 and isinstance(result[4], Mapping)):
            self.findings.must(
                "step_result",
                f"{call} returned {_kind(result)} instead of five values, the last a dictionary.",
                "The actor fails at its first step.",
                "Return observation, reward, terminated, truncated, info.",
            )
            raise Unusable
        observation, reward, terminated, truncated, info = result
        self._check_observation(observation, call)
        self._check_mask(observation, info, bool(terminated or truncated), call)
        value = self._reward(reward, info, call)
        self._goals.add(observation, value, info, call)
        return observation, value, bool(terminated), bool(truncated)

    def random_action(self) -> Any:
        """An action that the environment allows."""
        return random_action(self.env.action_space, self._mask, self._random)

    def _find_masks(self) -> None:
        env, space = self.env, self.env.observation_space
        with self.findings.of("reset()", self._timeout_s):
            name = type(env.unwrapped).__name__
            self.masks = action_masks.find_masks(env, space, env.action_space, name)

    def _check_mask(self, observation: Any, info: Any, over: bool, call: str) -> None:
        if self.masks is None:
            masked = action_masks.KEY in info
            if not action_masks.choices(self.env.action_space):
                if masked:
                    self.findings.should(
                        "mask_of_other_actions",
                        f"{call} returned an {action_masks.KEY}, but only Discrete and "
                        "MultiDiscrete actions can be masked.",
                        "The mask is ignored.",
                        "Use one of these spaces, or let step() handle forbidden actions.",
                    )
                return
            if masked:
                self._bad_mask(f"{call} returned an {action_masks.KEY}, but reset() did not")
            names = action_masks.other_names(self.env, self.env.observation_space, info)
            if names:
                self.findings.should(
                    "mask_name",
                    f"{names[0]} looks like an action mask, but agents do not look for that name.",
                    "Agents choose actions that are not allowed.",
                    f"Name it {action_masks.KEY}: a part of a Dict observation, or "
                    f'info["{action_masks.KEY}"] of reset() and every step().',
                )
            return
        try:
            mask = self.masks.find(observation, info)
            self._mask = self.masks.put(observation, mask, over)[action_masks.KEY]
        except UserError as error:
            self._bad_mask(f"{call}: {error}")

    def _bad_mask(self, what: str) -> None:
        self.findings.must(
            "action_mask",
            what,
            "The actor ends with an error, or ignores the mask.",
            "Return one entry per choice from reset() and every step(), at least one of which is "
            "not 0.",
        )
        raise Unusable

    def _reward(self, reward: Any, info: Any, call: str) -> float:
        try:
            value = rewards.number(reward, 0)
            score = rewards.number(info.get("score_reward", 0.0), 0, "score_reward")
            if (success := info.get("is_success")) is not None:
                rewards.number(success, 0, "is_success")
        except UserError as error:
            self.findings.must(
                "reward",
                f"{call}: {error}",
                "The actor ends with this message.",
                "Return a float as reward.",
            )
            raise Unusable from None
        for number in (value, score):
            if not abs(number) <= LARGEST:
                self.findings.not_finite(f"{call} returned the reward {number}")
        return value

    def _check_observation(self, value: Any, call: str) -> None:
        space = self.env.observation_space
        try:
            specs = space_lib.specs(space)
            if isinstance(space, spaces.Box) and isinstance(value, list):
                value = np.asarray(value)  # As training does.
            leaves = nest.flatten(nest.map_structure(lambda spec, leaf: leaf, specs, value))
        except (ValueError, KeyError, TypeError, UserError):
            self.findings.must(
                "structure",
                f"{call} returned {_kind(value)}, which does not have the structure of {space}.",
                "The actor exits with an error.",
                "Return what the space declares: a dictionary for Dict, a tuple for Tuple, "
                "otherwise an array (np.asarray).",
            )
            raise Unusable from None
        parts = zip(nest.flatten(specs), space_lib.leaf_spaces(space), leaves, strict=True)
        for spec, part, leaf in parts:
            self._check_leaf(spec, part, np.asarray(leaf), call)
        if space.contains(value) or any(f.name in _EXPLAINS for f in self.findings):
            return
        arrays = [np.asarray(leaf) for leaf in leaves]
        cast = [a.astype(spec.dtype) for a, spec in zip(arrays, nest.flatten(specs), strict=True)]
        same = all(np.allclose(a, c) for a, c in zip(arrays, cast, strict=True))
        rounded = any(map(_is_rounded, arrays, cast))
        if rounded or (same and space.contains(nest.pack_sequence_as(value, cast))):
            kinds = [array.dtype.name for array in arrays]
            self.findings.should(
                "other_dtype",
                f"{call} returned {', '.join(kinds)}, but its space is {space}.",
                "Every observation is converted.",
                "Return the dtype that the space declares, or declare the one returned.",
            )
            return
        try:
            env_wrappers.observation_conversion(space).convert(value)
        except UserError as error:
            self.findings.must(
                "choice",
                f"{call}: {error}",
                "The actor ends with this message.",
                "Count from 0, or from the start of the space; n is the number of values.",
            )
            raise Unusable from None
        self.findings.should(
            "bounds",
            f"{call} returned values outside of the bounds of its space: {_shown(value)} is not in "
            f"{space}.",
            "Agents do not need the bounds, but scaling by them would be wrong.",
            "Declare the true bounds (np.inf where there are none).",
        )

    def _check_leaf(
        self, spec: space_lib.ArraySpec, space: Any, leaf: np.ndarray, call: str
    ) -> None:
        if leaf.shape != spec.shape:
            self.findings.must(
                "shape",
                f"{call}: {spec.name} has shape {list(leaf.shape)}; its space says "
                f"{list(spec.shape)}.",
                "The actor exits with an error.",
                "Return arrays of one shape: pad what varies, and declare that shape.",
            )
            raise Unusable
        choice = isinstance(space, (spaces.Discrete, spaces.MultiDiscrete))
        as_declared = self._raw or choice or spec.dtype == np.uint8  # Others become float32.
        expected = spec.dtype if as_declared else np.dtype(np.float32)
        if leaf.dtype != spec.dtype and not space_lib.converts(leaf, expected):
            self.findings.must(
                "dtype",
                f"{call}: {spec.name} is {leaf.dtype.name}; its space says {spec.dtype.name}.",
                "The actor exits with an error, because it would have to change the values.",
                f"Return it as np.{spec.dtype.name}, or declare np.{leaf.dtype.name}.",
            )
            raise Unusable
        is_number = leaf.dtype.kind in "fiu"
        if is_number and not (np.abs(leaf.astype(np.float64)) <= LARGEST).all():
            self.findings.not_finite(
                f"{call}: {spec.name} contains NaN, infinity or more than {LARGEST:.0e}"
            )

    def _check_seed(self, steps: int) -> list[Any] | None:
        """Whether the same seed and actions give the same episodes; what they give, if so."""
        runs = [self._run(steps), self._run(steps)]
        for number, (first, second) in enumerate(zip(*runs, strict=False)):
            if not _same(first, second):
                place = f"step {number}" if number else "the first observation"
                self.findings.not_deterministic(f" from {place} on")
                return None
        return runs[0]

    def _check_beside_another(self, make: Callable[[], Any], alone: list[Any]) -> None:
        """Whether another environment in the same process changes an episode."""
        failed = Findings()
        try:
            with failed.of("Creating and resetting it", self._timeout_s):
                other = env_adapters.as_gymnasium(make())
                other.reset(seed=_SEED + 1)
        except Unusable:
            (cause,) = failed
            self.findings.should(
                "single",
                f"A second environment in the same process fails. {cause.what}",
                "Actors must have one environment each (ENVS_PER_ACTOR 1).",
                "Let each environment have its own simulator, port and files.",
            )
            return
        space = copy.deepcopy(other.action_space)  # Perhaps one object for both.
        space.seed(_SEED + 1)
        second = "A second environment in the same process"

        def play_other() -> None:
            with self.findings.of(second, self._timeout_s):
                if any(other.step(space.sample())[2:4]):
                    other.reset()

        beside = self._run(len(alone) - 1, play_other)
        with self.findings.of(second, self._timeout_s):
            other.close()
        if len(alone) != len(beside) or not all(map(_same, alone, beside)):
            self.findings.should(
                "shared",
                "The same seed and actions give another episode while a second environment in the "
                "same process plays.",
                "An actor has several environments: actions in one may change the others.",
                "Keep state in self, not in the class, in modules or in a library's only instance; "
                "draw randomness from self.np_random.",
            )

    def _run(self, steps: int, before: Callable[[], None] = lambda: None) -> list[Any]:
        self.env.action_space.seed(_SEED)
        self._random = np.random.default_rng(_SEED)
        seen: list[Any] = [_copied(self.reset(_SEED))]
        for _ in range(steps):
            before()
            observation, reward, terminated, truncated = self.step(self.random_action())
            seen.append((_copied(observation), reward, terminated, truncated))
            if terminated or truncated:
                break
        return seen

    def _play(self, steps: int) -> None:
        first = _copied(self.reset())
        length = 0
        varied = False
        for _ in range(steps):
            observation, _, terminated, truncated = self.step(self.random_action())
            length += 1
            varied = varied or not _same(observation, first)
            if terminated and truncated:
                self.findings.should(
                    "both",
                    "A step reported both terminated and truncated.",
                    "It counts as terminated: the learner expects no reward after it.",
                    "At a time limit, report truncated alone.",
                )
            if terminated or truncated:
                last = _copied(observation)
                first = _copied(self.reset())
                self.episodes.lengths.append(length)
                self.episodes.terminated.append(int(terminated))
                self.episodes.looped.append(varied and length > 1 and _same(last, first))
                length, varied = 0, False

    def _judge_episodes(self, steps: int) -> None:
        episodes, findings = self.episodes, self.findings
        if not episodes.lengths:
            findings.should(
                "endless",
                f"No episode ended within {steps} steps of random actions.",
                "Returns are only reported when episodes end: there will be no learning curve, and "
                "actors never see a first step again.",
                "Report truncated after a maximum number of steps. (gymnasium.wrappers.TimeLimit "
                "does; for registered environments, max_episode_steps in --env_kwargs.)",
            )
            return
        if set(episodes.lengths) == {1}:
            findings.must(
                "one_step",
                f"All {len(episodes.lengths)} episodes ended at their first step.",
                "There is nothing to learn but the first action. Often the cause is a reset() that "
                "keeps the state of the last episode.",
                "Let reset() begin a new episode. (One-step tasks, bandits, may ignore this.)",
            )
        elif all(episodes.looped) and len(episodes.looped) > 1:
            findings.should(
                "autoreset",
                "The last observation of an episode is the first of the next: the environment "
                "seems to reset itself.",
                "Agents cannot learn from the last observation before a time limit, since it is "
                "lost. Every reset happens twice.",
                "Return the last observation, and leave reset() to the caller (no autoreset "
                "wrapper).",
            )
        elif (
            len(episodes.lengths) >= 3
            and all(episodes.terminated)
            and len(set(episodes.lengths)) == 1
        ):
            findings.should(
                "time_limit",
                f"All {len(episodes.lengths)} episodes terminated after exactly "
                f"{episodes.lengths[0]} steps.",
                "If that is a time limit, agents wrongly learn that there is no reward after it.",
                "Report truncated, not terminated, where the episode could have continued.",
            )


_EXPLAINS = {"nan", "shape", "dtype", "structure"}


def _is_rounded(value: np.ndarray, cast: np.ndarray) -> bool:
    """Whether a value has fractions that its space cannot have."""
    return value.dtype.kind == "f" and cast.dtype.kind in "iu" and bool((value % 1 != 0).any())


def random_action(space: Any, mask: Any, random: np.random.Generator) -> Any:
    """An action of one environment that its mask allows; without a mask, any."""
    return space.sample() if mask is None else action_masks.allowed_actions(space, mask, random)


def _copied(value: Any) -> Any:
    return nest.map_structure(np.array, value)


def _same(first: Any, second: Any) -> bool:
    a, b = nest.flatten(first), nest.flatten(second)
    return len(a) == len(b) and all(map(_equal, a, b))


def _equal(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    return np.array_equal(a, b, equal_nan="f" in (a.dtype.kind, b.dtype.kind))


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype.name}{list(value.shape)}"
    return f"a {type(value).__name__}"


def _shown(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) < 80 else f"{text[:77]}..."
