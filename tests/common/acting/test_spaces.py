"""Spaces as text, which learner and actors compare."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from seed_rl.common.acting.spaces import describe

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
