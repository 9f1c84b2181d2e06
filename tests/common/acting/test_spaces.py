"""Spaces as text, which learner and actors compare."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from seed_rl.common.acting.spaces import describe, fitting, parse, specs
from seed_rl.common.errors import UserError

DISTINCT = [
    spaces.Discrete(6),
    spaces.Discrete(18),
    spaces.Discrete(6, start=1),
    spaces.MultiDiscrete([3, 2]),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiDiscrete([3, 2], start=[1, 0]),
    spaces.MultiBinary(4),
    spaces.MultiBinary([2, 2]),
    spaces.Box(-1, 1, (2,), np.float32),
    spaces.Box(-1, 2, (2,), np.float32),
    spaces.Box(-1, 1, (3,), np.float32),
    spaces.Box(np.array([-1, -2], np.float32), 1, (2,), np.float32),
    spaces.Box(-np.inf, np.inf, (2,), np.float32),
    spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)]),
    spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2)]),
    spaces.Dict(a=spaces.Discrete(2), b=spaces.Discrete(3)),
    spaces.Dict(a=spaces.Discrete(3), b=spaces.Discrete(2)),
]


def test_different_spaces_differ() -> None:
    assert len({describe(space) for space in DISTINCT}) == len(DISTINCT)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Box(0, 1, (0,)), "is empty"),
        (spaces.Dict(), "is empty"),
        (spaces.Tuple([spaces.Dict(), spaces.Box(0, 1, (2, 0))]), "is empty"),
        (spaces.Dict({1: spaces.Discrete(2), 2: spaces.Discrete(2)}), "not all strings"),
        (spaces.Text(3), "fixed shape"),
    ],
)
def test_spaces_that_cannot_be_used_are_refused(space: Any, message: str) -> None:
    """Guards against tracebacks of NumPy and TensorFlow."""
    with pytest.raises(UserError, match=f"observation space .*{message}"):
        specs(space)


def test_integers_do_not_wrap_around() -> None:
    """Guards against 44 in the place of 300; smaller numbers may have a larger type."""
    byte = specs(spaces.Box(0, 255, (2,), np.uint8))
    assert fitting(byte, np.array([0, 255], np.uint16), "It").tolist() == [0, 255]
    with pytest.raises(UserError, match=r"uint16\[2\] from .* to 300, expected uint8\[2\]"):
        fitting(byte, np.array([0, 300], np.uint16), "It")


def test_a_part_of_a_space_may_be_empty() -> None:
    space = spaces.Dict(a=spaces.Box(0, 1, (0,)), b=spaces.Discrete(2))
    assert specs(space)["a"].shape == (0,)
    assert "float32[0]" in describe(space)


@pytest.mark.parametrize("space", DISTINCT, ids=describe)
def test_a_text_is_parsed_to_its_space(space: Any) -> None:
    """Guards external environments, whose spaces are given as text."""
    assert describe(parse(describe(space))) == describe(space)
    assert parse(describe(space)).shape == space.shape


@pytest.mark.parametrize(
    ("text", "space"),
    [
        ("float32[4]", spaces.Box(-np.inf, np.inf, (4,), np.float32)),
        ("uint8[84, 84, 1]", spaces.Box(0, 255, (84, 84, 1), np.uint8)),
        ("float32[]", spaces.Box(-np.inf, np.inf, (), np.float32)),
        (
            "{a: (2 choices from 0, float32[1]), b: {c: 3 choices from -1}}",
            spaces.Dict(
                a=spaces.Tuple([spaces.Discrete(2), spaces.Box(-np.inf, np.inf, (1,), np.float32)]),
                b=spaces.Dict(c=spaces.Discrete(3, start=-1)),
            ),
        ),
    ],
)
def test_what_a_text_may_leave_out(text: str, space: Any) -> None:
    assert parse(text) == space


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("float33[2]", "no type float33; the types are float32, uint8"),
        ("2 choices", "cannot read '2 choices'; write it as"),
        ("", "cannot read ''"),
        ("{a}", "expected a name and a colon, not 'a}'"),
        ("{a: float32[2] b: float32[2]}", "expected a comma or }, not ' b: "),
        ("float32[2] from -1 to 1x", "nothing after the space, not 'x'"),
        ("(2 choices from 0", "expected a comma or \\), not ''"),
    ],
)
def test_texts_that_are_no_space(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)


@pytest.mark.parametrize(
    "a, b",
    [
        (
            spaces.Dict({"a": DISTINCT[0], "b": DISTINCT[1]}),
            spaces.Dict(b=DISTINCT[1], a=DISTINCT[0]),
        ),
        (spaces.Box(-1, 1, (2,), np.float64), spaces.Box(-1, 1, (2,), np.float32)),
    ],
    ids=["order of keys", "what travels as float32"],
)
def test_equal_spaces_are_described_alike(a: Any, b: Any) -> None:
    assert describe(a) == describe(b)
