"""Fixtures of the study's tests."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

SPEC: dict[str, Any] = {
    "game": "gym",
    "agent": "vtrace",
    "actors": 1,
    "envs_per_actor": 2,
    "frames": 1000,
    "configurations": 40,
    "seeds": 2,
    "sampling_seed": 7,
    "flags": {"env_name": "CartPole-v1", "grad_check": True, "repeated": [1, 2]},
    "bindings": {"GAE.normalize": False},
    "choices": {
        "learning_rate": {"log_uniform": [1e-4, 1e-2]},
        "advantage": {"gin": "Loss.advantage_estimator", "values": ["@GAE()", "@NStep()"]},
        "gae_lambda": {"gin": "GAE.lambda_", "uniform": [0.8, 1.0], "if": {"advantage": "@GAE()"}},
        "unroll_length": {"integers": [5, 20]},
    },
}


@pytest.fixture
def spec_json() -> dict[str, Any]:
    """A valid spec with every kind of choice, to be changed by the test."""
    return copy.deepcopy(SPEC)


@pytest.fixture
def change(spec_json: dict[str, Any]) -> Callable[..., dict[str, Any]]:
    """Sets the entry at a path of names."""

    def change(value: Any, *path: str) -> dict[str, Any]:
        place = spec_json
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value
        return spec_json

    return change
