"""Atari: the native vector environment and the single one are the same, and as the papers say."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from tests.helpers import run_python

ale_py = pytest.importorskip("ale_py")

from seed_rl.atari import environment as env  # noqa: E402
from seed_rl.atari.environment import AtariConfig  # noqa: E402
from seed_rl.common.acting.batched_env import BatchedEnvironment  # noqa: E402
from seed_rl.common.errors import UserError  # noqa: E402


def vector(size: int, **options: Any) -> Any:
    return env.create_batch(np.arange(size), AtariConfig(**options))


def singles(size: int, **options: Any) -> BatchedEnvironment:
    return BatchedEnvironment(env.create_environment, size, 0, AtariConfig(**options))


@pytest.mark.parametrize(
    ("game", "num_action_repeats", "max_episode_frames", "look"),
    [
        ("Breakout", 4, 800, {}),  # Terminates and is cut off.
        ("Pong", 4, 402, {"frame_size": (72, 96)}),  # No multiple of the action's frames.
        ("Freeway", 1, 60, {"frame_size": (105, 80), "grayscale": False}),
    ],
)
def test_vector_and_single_environments_are_the_same(
    game: str, num_action_repeats: int, max_episode_frames: int, look: dict[str, Any]
) -> None:
    """Frame by frame and bit by bit, over ends of both kinds."""
    options = {
        **look,
        "game": game,
        "num_action_repeats": num_action_repeats,
        "max_random_noops": 0,  # They draw from different generators.
        "max_episode_frames": max_episode_frames,
    }
    native, reference = vector(2, **options), singles(2, **options)
    np.testing.assert_array_equal(native.reset(seed=1), reference.reset(seed=1))
    generator = np.random.default_rng(0)
    ends = np.zeros(2, int)
    for _ in range(350):
        actions = generator.integers(18, size=2)
        actual, expected = native.step(actions), reference.step(actions)
        for name in actual._fields[:6]:  # Games do not tell success.
            a, e = getattr(actual, name), getattr(expected, name)
            np.testing.assert_array_equal(a, e, err_msg=name)
            assert a.dtype == e.dtype and a.shape == e.shape
        ends += [(actual.done & ~actual.abandoned).sum(), actual.abandoned.sum()]
    assert ends[1] > 0 and (ends[0] > 0 or game != "Breakout")
    size = look.get("frame_size", (84, 84))
    assert actual.observation.shape == (2, *size, 1 if look.get("grayscale", True) else 3)
    native.close()
    reference.close()


def test_spaces_and_env_ids() -> None:
    game = env.create_batch(np.arange(4, 8))
    single = env.create_environment(0, AtariConfig())
    assert game.env_ids.tolist() == [4, 5, 6, 7] and game.env_ids.dtype == np.int32
    assert game.observation_space == single.observation_space
    assert game.observation_space.shape == (84, 84, 1)
    assert game.action_space == single.action_space and game.action_space.n == 18
    assert vector(1, full_action_space=False).action_space.n == 6
    assert singles(1, full_action_space=False).action_space.n == 6


@pytest.mark.parametrize("make", [vector, singles])
def test_random_noops_begin_episodes_differently(make: Any) -> None:
    """Without them every episode of a deterministic game would be the same."""
    varied = make(4, game="Freeway", max_random_noops=30).reset(seed=3)
    assert len({frame.tobytes() for frame in varied}) > 2
    alike = make(4, game="Freeway", max_random_noops=0).reset(seed=3)
    assert len({frame.tobytes() for frame in alike}) == 1


@pytest.mark.parametrize("make", [vector, singles])
def test_seed_repeats_a_game(make: Any) -> None:
    def play(seed: int) -> np.ndarray:
        game = make(2, game="Freeway", sticky_actions=True)
        frames = [game.reset(seed=seed).copy()]
        for step in range(20):
            frames.append(game.step(np.array([step % 6, 2])).observation.copy())
        return np.stack(frames)

    again = play(1)
    np.testing.assert_array_equal(play(1), again)
    assert (play(2) != again).any()


@pytest.mark.parametrize("make", [vector, singles])
def test_sticky_actions(make: Any) -> None:
    """With them the same actions lead elsewhere, in every game; without them they do not."""

    def plays(sticky: bool) -> set[bytes]:
        game = make(4, game="Breakout", sticky_actions=sticky, max_random_noops=0)
        game.reset()  # Without a seed: ALE's own would be the same for games of one second.
        steps = [game.step(np.full(4, [1, 3, 4][t % 3])).observation.copy() for t in range(40)]
        return {play.tobytes() for play in np.stack(steps, axis=1)}

    assert len(plays(False)) == 1 and len(plays(True)) == 4


def test_vector_refuses_unknown_actions() -> None:
    """It would kill ALE's thread, and the actor would hang forever."""
    game = vector(2)
    game.reset()
    with pytest.raises(UserError, match="action space"):
        game.step(np.array([0, 18]))
    game.step(np.array([0, 17]))


def test_missing_extra_names_the_command(monkeypatch: Any) -> None:
    """Not a traceback of an import deep inside."""
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(UserError, match="-m pip install ale-py opencv-python-headless"):
        env.create_environment(0, AtariConfig())
    monkeypatch.delitem(sys.modules, "seed_rl.atari.vector_env", raising=False)
    monkeypatch.delattr("seed_rl.atari.vector_env", raising=False)
    with pytest.raises(UserError, match="-m pip install ale-py"):
        env.create_batch([0], AtariConfig())


def test_native_actor_needs_neither_opencv_nor_tensorflow() -> None:
    """They would cost each actor 16 and 500 MB."""
    program = """
import sys
import numpy as np
from seed_rl.atari import environment
from seed_rl.common import actor  # As in actors.
games = environment.create_batch(np.arange(2))
games.reset()
games.step(np.zeros(2, np.int64))
print([name for name in ("tensorflow", "cv2", "matplotlib") if name in sys.modules])
"""
    result = run_python("-c", program, code=0)
    assert result.stdout.strip() == "[]"
