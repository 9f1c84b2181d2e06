"""Wrappers that convert an environment's spaces to those that agents support."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from seed_rl.common.acting import action_masks, rewards
from seed_rl.common.acting.env_adapters import as_gymnasium
from seed_rl.common.acting.spaces import SMALLEST_IMAGE, is_image, specs
from seed_rl.common.errors import UserError

_ONE, _MINUS_ONE = np.float32(1.0), np.float32(-1.0)
# Channels of a channels-first image, e.g. four stacked color frames.
_MOST_CHANNELS = 16


class UniformBoundActionSpaceWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Rescales a bounded `Box` of actions to [-1, 1]; actions outside are clipped."""

    def __init__(self, env: Any):
        """Wraps `env`.

        Raises:
          UserError: its action space is not a bounded Box of floats.
        """
        super().__init__(as_gymnasium(env))
        space = self.env.action_space
        if not is_bounded(space):
            raise UserError(f"Only a bounded Box of floats can be rescaled, not {space}.")
        assert isinstance(space, spaces.Box)
        self._box = space
        self.action_space = spaces.Box(-1.0, 1.0, space.shape, np.float32)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        return self.env.step(from_unit(self._box, action))


class DiscretizeEnvWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Replaces a bounded `Box` [n] of actions by n choices of `n_actions_per_dim` values each."""

    def __init__(
        self,
        env: Any,
        n_actions_per_dim: int,
        discretization: str = "lin",
        action_ratio: float | None = None,
    ):
        """Wraps `env`.

        Args:
          env: its action space is a bounded Box of floats, for "log" symmetric around 0.
          n_actions_per_dim: number of values; odd, so that the middle of the range is among them.
          discretization: "lin" spaces the values evenly; "log" spaces their magnitudes evenly on a
            logarithmic scale, for a finer resolution of small actions.
          action_ratio: for "log", the largest magnitude divided by the smallest; more than 1.

        Raises:
          UserError: the space or an argument is not as described.
        """
        super().__init__(as_gymnasium(env))
        space = self.env.action_space
        if not is_bounded(space) or len(space.shape or ()) != 1:
            raise UserError(
                f"Only a bounded Box of floats of rank 1 can be discretized, not {space}."
            )
        if n_actions_per_dim < 3 or n_actions_per_dim % 2 == 0:
            raise UserError(
                f"n_actions_per_dim must be odd and at least 3, not {n_actions_per_dim}."
            )
        assert isinstance(space, spaces.Box)
        if discretization == "lin":
            unit = np.linspace(-1.0, 1.0, n_actions_per_dim)
        elif discretization == "log":
            if action_ratio is None or action_ratio <= 1:
                raise UserError(f"The log scale requires action_ratio > 1, not {action_ratio}.")
            if not np.allclose(space.low, -space.high):
                raise UserError(f"The log scale requires bounds symmetric around 0, not {space}.")
            positive = np.geomspace(1.0 / action_ratio, 1.0, n_actions_per_dim // 2)
            unit = np.concatenate([-positive[::-1], [0.0], positive])
        else:
            raise UserError(f"discretization must be 'lin' or 'log', not '{discretization}'.")
        self._values = np.stack([from_unit(space, np.full(space.shape, u)) for u in unit])
        self.action_space = spaces.MultiDiscrete([n_actions_per_dim] * space.shape[0])

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        choice = np.asarray(action)
        return self.env.step(self._values[choice, np.arange(self._values.shape[1])])

    def render(self, *args: Any, **kwargs: Any) -> Any:
        """What the environment renders; Gymnasium sets the mode at creation, not here."""
        del args, kwargs
        return self.env.render()


class RepeatActions(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Repeats each action for some frames, or until an episode or the learner's episode ends.

    Rewards and scores (`info["score_reward"]`) are summed; observation and the rest of the infos
    are those of the last frame. Environments with action masks are refused: an action that is
    allowed at its first frame may be forbidden at the next.
    """

    def __init__(self, env: Any, num_frames: int):
        """Wraps `env`; `num_frames` per action, at least 1."""
        super().__init__(as_gymnasium(env))
        self._num_frames = num_frames
        metadata = self.env.metadata or {}
        if fps := metadata.get("render_fps"):  # Of what is seen: the last frame of each action.
            self.metadata = {**metadata, "render_fps": fps / num_frames}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Raises a UserError if the environment has action masks."""
        observation, info = self.env.reset(seed=seed, options=options)
        if action_masks.KEY in info or action_masks.is_masked(self.env.observation_space):
            raise UserError(
                f"--num_action_repeats={self._num_frames}: {type(self.env.unwrapped).__name__} has "
                f"an {action_masks.KEY}, which may forbid an action before it has been repeated. "
                "Leave the option out, or let the environment repeat what it allows."
            )
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        total, score, scored = 0.0, 0.0, False
        for _ in range(self._num_frames):
            observation, reward, terminated, truncated, info = self.env.step(action)
            scored |= "score_reward" in info
            total += rewards.number(reward)
            score += rewards.number(info.get("score_reward", reward), name="score_reward")
            if terminated or truncated or info.get("learning_episode_over"):
                break
        if scored:
            info = {**info, "score_reward": score}
        return observation, total, terminated, truncated, info


def height_and_width(frame_size: Sequence[int]) -> tuple[int, int]:
    """The numbers of --frame_size as (height, width); one number is both.

    Raises:
      UserError: there are more than two, or networks would not take such frames as images.
    """
    given = f"--frame_size={','.join(map(str, frame_size))}"
    if len(frame_size) > 2:
        raise UserError(f"{given}: write height,width.")
    if min(frame_size) < SMALLEST_IMAGE:
        least = f"{SMALLEST_IMAGE} x {SMALLEST_IMAGE}"
        raise UserError(f"{given}: too small for convolutions, which take at least {least}.")
    return frame_size[0], frame_size[-1]


def with_frames(env: Any, frame_size: Sequence[int], grayscale: bool, frame_stack: int) -> Any:
    """`env`, wrapped in Gymnasium's wrappers for frames.

    Args:
      env: a Gymnasium environment, or a vector environment.
      frame_size: height and width, or one number for both; (): as they are.
      grayscale: whether colours become grey.
      frame_stack: observations in a stack, which is filled with zeros before an episode.

    Raises:
      UserError: a wrapper does not accept observations of this kind.
    """
    if not (frame_size or grayscale or frame_stack > 1):
        return env
    is_vector = hasattr(env, "single_observation_space")
    kinds: Any = gymnasium.wrappers.vector if is_vector else gymnasium.wrappers
    space = env.single_observation_space if is_vector else env.observation_space
    channels_first = is_channels_first(space)
    try:
        if frame_size or grayscale:
            if is_vector and not isinstance(env, gymnasium.vector.VectorEnv):
                raise ValueError("The vector environment must derive from gymnasium's VectorEnv")
            if channels_first and is_vector:
                raise ValueError("A vector environment must have the channels of images last")
            env = AgentObservations(env) if channels_first else env
            channels = (space.shape or (0,))[0 if channels_first else -1]
            if frame_size and channels > 4 and len(space.shape or ()) == 3:
                raise ValueError(f"Images have at most 4 channels, not {channels}")
        if frame_size:
            env = kinds.ResizeObservation(env, height_and_width(frame_size))
        if grayscale:
            env = kinds.GrayscaleObservation(env, keep_dim=True)
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(f"--frame_size and --grayscale: {error}.") from error
    if frame_stack > 1:
        if is_vector or not isinstance(space, spaces.Box) or is_image(space) or channels_first:
            raise UserError(
                f"--frame_stack={frame_stack} stacks the vectors of single environments, not "
                f"{space}{' of a vector environment' if is_vector else ''}. Images are stacked by "
                "the learner: --stack_size."
            )
        # The stack keeps what it is given, and some environments reuse their array.
        env = gymnasium.wrappers.TransformObservation(env, np.array, space)
        env = gymnasium.wrappers.FrameStackObservation(env, frame_stack, padding_type="zero")
    return env


def wrap_for_agent(env: Any, observations: bool = True) -> gymnasium.Env[Any, Any]:
    """Wraps `env` with `AgentActions` and `AgentObservations` if they change its spaces.

    Action masks become a part of the observation, see `action_masks`.

    Args:
      env: a Gymnasium (or old gym) environment.
      observations: whether to wrap the observations.

    Raises:
      UserError: the observation space does not consist of arrays of fixed shape.
    """
    env = as_gymnasium(env)
    if action_conversion(env.action_space).space is not env.action_space:
        env = AgentActions(env)
    specs(env.observation_space)
    name = type(env.unwrapped).__name__
    masks = action_masks.find_masks(env, env.observation_space, env.action_space, name)
    if masks:
        env = action_masks.MaskedObservations(env, masks)
    seen = observation_conversion(env.observation_space).space
    return AgentObservations(env) if observations and seen is not env.observation_space else env


class AgentObservations(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Converts observations to what networks take: <float32> or <uint8> arrays.

    `Discrete` and `MultiDiscrete` become one-hot vectors <float32>[sum of choices], `MultiBinary`
    becomes <float32>, `Box` keeps <uint8> and becomes <float32> otherwise. Channels-first images
    become channels-last. `Dict` and `Tuple` keep their structure.
    """

    def __init__(self, env: Any):
        """Wraps `env`."""
        super().__init__(as_gymnasium(env))
        self.observation_space, self._convert = observation_conversion(self.env.observation_space)

    def observation(self, observation: Any) -> Any:
        return self._convert(observation)


class AgentActions(gymnasium.ActionWrapper[Any, Any, Any]):
    """Converts actions to what agents return: every bounded `Box` becomes a vector within [-1, 1].

    Arrays of `MultiDiscrete` and `MultiBinary` become vectors too. `Dict` and `Tuple` keep their
    structure.
    """

    def __init__(self, env: Any):
        """Wraps `env`."""
        super().__init__(as_gymnasium(env))
        self.action_space, self._convert = action_conversion(self.env.action_space)

    def action(self, action: Any) -> Any:
        return self._convert(action)


class Conversion(NamedTuple):
    """How agents see observations or actions of a space.

    Attributes:
      space: what agents see; the environment's own space if nothing changes.
      convert: converts one observation, or [k, ...], to what agents see; or one action, or
        [k, ...], to what the environment takes.
    """

    space: spaces.Space[Any]
    convert: Callable[[Any], Any]


def observation_conversion(space: spaces.Space[Any]) -> Conversion:
    """How agents see observations of `space`; see `AgentObservations`."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        return _by_parts(space, observation_conversion)
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return _one_hot(space)
    if is_channels_first(space):
        assert isinstance(space, spaces.Box)
        low, high = np.moveaxis(space.low, 0, -1), np.moveaxis(space.high, 0, -1)
        image = spaces.Box(low, high, dtype=np.uint8)
        return Conversion(image, lambda value: np.moveaxis(value, -3, -1))
    if space.dtype == np.uint8:
        return Conversion(space, lambda value: value)
    if isinstance(space, spaces.MultiBinary):
        space = spaces.Box(0.0, 1.0, space.shape, np.float32)
    elif isinstance(space, spaces.Box) and space.dtype != np.float32:
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)
        space = spaces.Box(low, high, dtype=np.float32)
    return Conversion(space, lambda value: np.asarray(value, np.float32))


def action_conversion(space: spaces.Space[Any]) -> Conversion:
    """How agents see actions of `space`; see `AgentActions`."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        return _by_parts(space, action_conversion)
    if is_bounded(space):
        assert isinstance(space, spaces.Box)
        vector = spaces.Box(-1.0, 1.0, (int(np.prod(space.shape)),), np.float32)
        return Conversion(vector, _rescaling(space))
    if isinstance(space, spaces.MultiDiscrete) and len(space.shape) != 1:
        nvec, start = space.nvec.reshape(-1), space.start.reshape(-1)
        choices = spaces.MultiDiscrete(nvec, space.dtype.type, start=start)
        return Conversion(choices, _unflattening(space.shape))
    if isinstance(space, spaces.MultiBinary) and len(space.shape) != 1:
        bits = spaces.MultiBinary(int(np.prod(space.shape)))
        return Conversion(bits, _unflattening(space.shape))
    return Conversion(space, lambda action: action)


def _by_parts(
    space: spaces.Dict | spaces.Tuple, of_part: Callable[[spaces.Space[Any]], Conversion]
) -> Conversion:
    if isinstance(space, spaces.Dict):
        named = {key: of_part(sub) for key, sub in space.spaces.items()}
        by_key = {key: part.convert for key, part in named.items()}
        return Conversion(
            spaces.Dict({key: part.space for key, part in named.items()}),
            lambda value: {key: convert(value[key]) for key, convert in by_key.items()},
        )
    parts = [of_part(sub) for sub in space.spaces]
    converters = [part.convert for part in parts]
    return Conversion(
        spaces.Tuple([part.space for part in parts]),
        lambda value: tuple(convert(v) for convert, v in zip(converters, value, strict=True)),
    )


def _one_hot(space: spaces.Discrete | spaces.MultiDiscrete) -> Conversion:
    """From <int>[*space.shape] or [k, *space.shape] to <float32>[(k,) sum].

    It raises a UserError if a value is not in the space: it would become that of another value.
    """
    start, rank = space.start, len(space.shape or ())
    sizes = np.reshape(space.n if isinstance(space, spaces.Discrete) else space.nvec, -1)
    offsets, total = np.cumsum(sizes) - sizes, int(sizes.sum())

    def convert(value: Any) -> np.ndarray:
        choices = np.asarray(value) - start
        one = np.ndim(choices) == rank  # For one environment, much faster.
        if one and not rank:
            fits: Any = 0 <= choices < total
        else:
            choices = np.reshape(choices, -1 if one else (-1, len(offsets)))
            fits = ((choices >= 0) & (choices < sizes)).all()
        if not fits:
            raise UserError(
                f"An observation has the value {np.asarray(value).tolist()}, which is not in its "
                f"space {space}. Declare a space with all values."
            )
        columns = offsets + choices
        if one:
            vector = np.zeros(total, np.float32)
            vector[columns] = 1.0
            return vector
        vectors = np.zeros((len(columns), total), np.float32)
        vectors[np.arange(len(columns))[:, np.newaxis], columns] = 1.0
        return vectors

    return Conversion(spaces.Box(0.0, 1.0, (total,), np.float32), convert)


def _unflattening(shape: tuple[int, ...]) -> Callable[[Any], np.ndarray]:
    """A function from [..., n] to [..., *shape]."""
    if len(shape) == 1:
        return np.asarray
    return lambda action: np.reshape(action, (*np.shape(action)[:-1], *shape))


def _rescaling(box: spaces.Box) -> Callable[[Any], np.ndarray]:
    """A function that maps vectors [..., n] within [-1, 1] to `box`."""
    unflatten = _unflattening(box.shape)
    if box.dtype == np.float32 and np.all(box.low == -1.0) and np.all(box.high == 1.0):
        # Common in MuJoCo, where scaling would slow down a step by 10 %, and np.clip by 5 %.
        return lambda action: np.minimum(
            np.maximum(np.asarray(unflatten(action), np.float32), _MINUS_ONE), _ONE
        )
    return lambda action: from_unit(box, unflatten(action))


def is_channels_first(space: spaces.Space[Any]) -> bool:
    """Whether observations are images <uint8>[channels, height, width], as PyTorch has them.

    Networks take [height, width, channels].
    """
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
        return False
    return has_channels_first(space.shape)


def has_channels_first(shape: Sequence[int]) -> bool:
    """Whether the shape is that of images [channels, height, width]."""
    return len(shape) == 3 and shape[0] <= _MOST_CHANNELS and min(shape[1:]) >= SMALLEST_IMAGE


def is_bounded(space: spaces.Space[Any]) -> bool:
    """Whether the space is a `Box` of floats with bounds, which agents see as [-1, 1]."""
    return isinstance(space, spaces.Box) and space.is_bounded() and space.dtype.kind == "f"


def from_unit(space: spaces.Box, action: Any) -> np.ndarray:
    """Maps an action within [-1, 1] to `space`."""
    fraction = (np.clip(np.asarray(action, np.float64), -1.0, 1.0) + 1.0) / 2.0
    scaled = space.low + fraction * (space.high.astype(np.float64) - space.low)
    # Rounding must not move an action out of the space.
    return np.clip(scaled.astype(space.dtype), space.low, space.high)
