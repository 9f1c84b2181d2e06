"""Which actions an environment allows (no TensorFlow here).

By the convention of Gymnasium and PettingZoo, a mask says for each choice of a `Discrete` action
(for `MultiDiscrete`, for each choice of one component after another) whether it is allowed now. It
is either the entry `action_mask` of a `Dict` observation, or `info["action_mask"]` of `reset` and
`step`. In both cases, agents find it in the observation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from seed_rl.common import nest
from seed_rl.common.errors import UserError

KEY = "action_mask"


def choices(action_space: spaces.Space[Any]) -> list[int]:
    """Number of choices of each discrete action of the space; [] for spaces without masks."""
    if isinstance(action_space, spaces.Discrete):
        return [int(action_space.n)]
    if isinstance(action_space, spaces.MultiDiscrete):
        return [int(n) for n in action_space.nvec.flatten()]
    return []


def other_names(env: Any, observation_space: Any, info: Mapping[str, Any]) -> list[str]:
    """Names of what may be masks by another convention, such as SB3-Contrib's method."""
    parts = observation_space.spaces if isinstance(observation_space, spaces.Dict) else {}
    names = {*map(str, parts), *map(str, info), "action_masks()"} - {KEY}
    if not callable(getattr(env.unwrapped, "action_masks", None)):
        names.discard("action_masks()")
    return sorted(name for name in names if "action" in name and "mask" in name)


def allowed_actions(
    action_space: Any, mask: np.ndarray, random: np.random.Generator | None = None
) -> np.ndarray:
    """Actions allowed by a mask [..., choices]: random ones, or the first ones without `random`."""
    scores = mask if random is None else mask * (1.0 - random.random(mask.shape))
    parts = np.split(scores, np.cumsum(choices(action_space))[:-1], axis=-1)
    chosen = np.stack([part.argmax(axis=-1) for part in parts], axis=-1)
    actions = chosen + np.reshape(action_space.start, -1)
    return actions.reshape((*mask.shape[:-1], *action_space.shape))


def is_masked(observation_space: Any) -> bool:
    """Whether observations of the space have a mask."""
    return isinstance(observation_space, spaces.Dict) and KEY in observation_space.spaces


def without_mask(observation: Any) -> Any:
    """What networks see: `observation` (or its space, or specs) without the mask.

    If only one entry is left, the entry itself.
    """
    if isinstance(observation, spaces.Dict):
        left = without_mask(observation.spaces)
        return spaces.Dict(dict(left)) if isinstance(left, Mapping) else left
    if not isinstance(observation, Mapping) or KEY not in observation:
        return observation
    left = {key: part for key, part in observation.items() if key != KEY}
    return next(iter(left.values())) if len(left) == 1 else left


def with_mask(seen: Any, observation: Any) -> Any:
    """Inverse of `without_mask`: `observation`, with everything but the mask taken from `seen`."""
    if not isinstance(observation, Mapping) or KEY not in observation:
        return seen
    names = [name for name in observation if name != KEY]
    parts = {names[0]: seen} if len(names) == 1 else seen
    return {**parts, KEY: observation[KEY]}


class ActionMasks:
    """Moves the masks of one environment, or of k, into the observation: <uint8>[(k,) choices].

    Attributes:
      observation_space: of one environment, with the mask.
      in_info: whether the masks are in the infos, rather than in the observations.
    """

    def __init__(self, observation_space: Any, action_space: Any, in_info: bool, owner: str):
        """Describes an environment with masks.

        Args:
          observation_space: of one environment.
          action_space: of one environment.
          in_info: see above.
          owner: the environment's name, for messages.

        Raises:
          UserError: its actions cannot be masked.
        """
        self._choices = choices(action_space)
        if not self._choices:
            raise UserError(
                f"{owner}: its observations have an {KEY}, but only Discrete and MultiDiscrete "
                f"actions can be masked, not {action_space}. Give that part another name."
            )
        self.in_info, self._owner = in_info, owner
        self._alone = not isinstance(observation_space, spaces.Dict)
        parts = {"observation": observation_space} if self._alone else observation_space.spaces
        width = sum(self._choices)
        self.observation_space = spaces.Dict(
            {**parts, KEY: spaces.Box(0, 1, (width,), dtype=np.uint8)}
        )
        self._starts = np.cumsum([0, *self._choices[:-1]])

    def find(self, observation: Any, info: Mapping[str, Any], *size: int) -> np.ndarray:
        """The mask <uint8>[(k,) choices]; zeros if the info should have one but does not.

        Args:
          observation: of one environment, or of a vector environment.
          info: likewise.
          *size: k, for a vector environment.

        Raises:
          UserError: it has another size.
        """
        source = info if self.in_info else observation
        if KEY not in source:
            return np.zeros((*size, sum(self._choices)), np.uint8)
        return self._flat(source[KEY], size)

    def put(self, observation: Any, mask: np.ndarray, over: Any = False) -> Any:
        """The observation with the mask; `observation` is not changed.

        Args:
          observation: of one environment, or nest of [k, ...].
          mask: from `find`.
          over: <bool>[] or [k], whether the episode is over: the mask may then allow nothing.

        Raises:
          UserError: the mask allows nothing.
        """
        nothing = ~np.logical_or.reduceat(mask, self._starts, axis=-1).all(axis=-1)
        if (nothing & ~np.asarray(over)).any():
            raise UserError(
                f"{self._owner}: its {KEY} allows no action, or is missing from the info. Allow at "
                "least one of each choice in every step until the episode ends."
            )
        mask[nothing] = 1
        return {**({"observation": observation} if self._alone else observation), KEY: mask}

    def _flat(self, mask: Any, size: tuple[int, ...]) -> np.ndarray:
        """A copy of a mask: an array or, as in Gymnasium for `MultiDiscrete`, a tuple of them."""
        if isinstance(mask, np.ndarray) and mask.dtype == object and size:
            # None where a vector environment's info is not about all of its environments.
            nothing = np.zeros(sum(self._choices))
            return np.stack([self._flat(nothing if m is None else m, ()) for m in mask])
        parts = [np.reshape(part, (*size, -1)) for part in nest.flatten(mask)]
        flat = (np.concatenate(parts, axis=-1) != 0).astype(np.uint8)
        if flat.shape[-1] != sum(self._choices):
            raise UserError(
                f"{self._owner}: its {KEY} has {flat.shape[-1]} entries, but there are "
                f"{sum(self._choices)} choices. Return one entry per choice."
            )
        return flat


class MaskedObservations(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose observations contain its masks."""

    def __init__(self, env: Any, masks: ActionMasks):
        """Wraps `env`, with its masks."""
        super().__init__(env)
        self._masks = masks
        self.observation_space = masks.observation_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self._masks.put(observation, self._masks.find(observation, info)), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        mask = self._masks.find(observation, info)
        observation = self._masks.put(observation, mask, bool(terminated or truncated))
        return observation, reward, terminated, truncated, info


def find_masks(
    env: Any, observation_space: Any, action_space: Any, owner: str
) -> ActionMasks | None:
    """The masks of an environment, or of a vector environment; None: it has none.

    Only a reset can tell whether masks are in the infos, so environments with discrete actions are
    reset once; an error of that reset is ignored, as it will be reported the next time.

    Args:
      env: an environment or a vector environment.
      observation_space: of one environment.
      action_space: of one environment.
      owner: see `ActionMasks`.

    Raises:
      UserError: its actions cannot be masked.
    """
    in_info = False
    if not is_masked(observation_space):
        with contextlib.suppress(Exception, SystemExit):
            in_info = bool(choices(action_space)) and KEY in env.reset()[1]
        if not in_info:
            return None
    return ActionMasks(observation_space, action_space, in_info, owner)
