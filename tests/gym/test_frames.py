"""--frame_size, --grayscale and --frame_stack of Gymnasium environments, against NumPy."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

pytest.importorskip("cv2")

from seed_rl.common.acting.batched_env import BatchedEnvironment  # noqa: E402
from seed_rl.common.errors import UserError  # noqa: E402
from seed_rl.gym.env import GymConfig, create_batch, create_environment  # noqa: E402

FRAMES = np.random.default_rng(0).integers(0, 256, (6, 72, 96, 3), np.uint8)


class Pixels(gymnasium.Env[Any, Any]):
    """Shows `FRAMES` in turn; an episode is truncated after its third."""

    action_space = spaces.Discrete(2)

    def __init__(self, channels_first: bool = False):
        shape = (3, 72, 96) if channels_first else (72, 96, 3)
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self._first = channels_first
        self._frame = -1

    def _next(self) -> np.ndarray:
        self._frame += 1
        frame = FRAMES[self._frame % 6]
        return np.moveaxis(frame, -1, 0) if self._first else frame

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self._frame = -1
        return self._next(), {}

    def step(self, action: Any) -> Any:
        return self._next(), 0.0, False, self._frame == 2, {}


def many(num_envs: int, mode: str, channels_first: bool = False) -> Any:
    made = [lambda: Pixels(channels_first)] * num_envs
    return SyncVectorEnv(made, autoreset_mode=AutoresetMode[mode])


class Layers(gymnasium.Env[Any, Any]):
    """Images of more channels than OpenCV resizes."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(0, 255, (72, 96, 5), np.uint8)


SAME_STEP = '{"mode": "SAME_STEP"}'
FIRST = '{"channels_first": true}'
MANY_FIRST = '{"mode": "NEXT_STEP", "channels_first": true}'


def config(name: str, **options: Any) -> GymConfig:
    return GymConfig(env_name=f"{__name__}:{name}", **options)


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("Pixels", "{}"),
        ("Pixels", FIRST),
        ("many", '{"mode": "NEXT_STEP"}'),
    ],
)
@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"frame_size": (36, 48)}, (36, 48, 3)),
        ({"frame_size": (36,)}, (36, 36, 3)),
        ({"grayscale": True}, (72, 96, 1)),
        ({"frame_size": (36, 48), "grayscale": True}, (36, 48, 1)),
    ],
)
def test_size_and_colour(name: str, kwargs: str, options: Any, shape: Any) -> None:
    """Guards every way to make environments, over the end of an episode; means of blocks, and grey
    by the weights of Rec. 709, up to rounding.
    """
    made = config(name, env_kwargs=kwargs, **options)
    env: Any = create_batch(np.arange(2), made)
    env = env or BatchedEnvironment(create_environment, 2, 0, made)
    assert env.observation_space == spaces.Box(0, 255, shape, np.uint8)
    expected = FRAMES.astype(float)
    if options.get("frame_size") == (36, 48):
        expected = expected.reshape(6, 36, 2, 48, 2, 3).mean((2, 4))
    if options.get("grayscale"):
        expected = (expected @ [0.2125, 0.7154, 0.0721])[..., np.newaxis]
    seen = [env.reset(seed=0).copy()]
    seen += [env.step(np.zeros(2, int)).observation.copy() for _ in range(4)]
    for frame, observation in zip([0, 1, 2, 0, 1], seen, strict=True):
        assert observation.shape == (2, *shape)
        if shape != (36, 36, 3):
            difference = np.abs(observation - expected[frame])
            assert difference.max() < 2 and difference.mean() < 0.8
    env.close()


class Reused(gymnasium.Env[Any, Any]):
    """Returns the same array each time: the number of the step."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(0, 9, (1,), np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self._step = np.ones(1, np.float32)
        return self._step, {}

    def step(self, action: Any) -> Any:
        self._step += 1
        return self._step, 0.0, False, False, {}


def test_stacks_of_a_reused_array() -> None:
    """Guards against k copies of the newest observation."""
    env = create_environment(0, config("Reused", frame_stack=3))
    env.reset()
    env.step(0)
    assert env.step(0)[0].ravel().tolist() == [1, 2, 3]


def test_vectors_are_stacked() -> None:
    """Guards order and zeros: the newest observation is the last."""
    env = create_environment(0, GymConfig(env_name="CartPole-v1", frame_stack=3))
    bare = gymnasium.make("CartPole-v1")
    assert env.observation_space.shape == (3, 4)
    for seed in (3, 4):
        last = [np.zeros(4), np.zeros(4), bare.reset(seed=seed)[0]]
        observation, _ = env.reset(seed=seed)
        for _ in range(4):
            np.testing.assert_array_equal(observation, last)
            observation, last = env.step(1)[0], [*last[1:], bare.step(1)[0]]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (config("Pixels", frame_stack=4), "--stack_size"),
        (config("many", env_kwargs='{"mode": "NEXT_STEP"}', frame_stack=4), "a vector environment"),
        (config("many", env_kwargs=SAME_STEP, grayscale=True), "autoreset_mode"),
        (config("many", env_kwargs=MANY_FIRST, frame_size=(36,)), "must have .* channels .* last"),
        (config("Pixels", env_kwargs=FIRST, frame_stack=4), "--stack_size"),
        (config("Layers", frame_size=(36,)), "at most 4 channels, not 5"),
        (config("Pixels", frame_size=(35, 96)), "--frame_size=35,96: too small .*36 x 36"),
        (config("Pixels", frame_size=(36, 36, 3)), "height,width"),
        (GymConfig(env_name="CartPole-v1", frame_size=(84,)), "--frame_size.*image"),
        (GymConfig(env_name="CartPole-v1", grayscale=True), "--grayscale.*image"),
    ],
)
def test_what_does_not_fit_is_an_error_for_users(made: GymConfig, message: str) -> None:
    with pytest.raises(UserError, match=message):
        create_environment(0, made)
