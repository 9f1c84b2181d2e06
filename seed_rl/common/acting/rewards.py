"""Rewards must be numbers (no TensorFlow here).

NumPy would turn None into NaN, and an array of one number into that number; whoever trains on
such rewards searches for the reason in the agent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seed_rl.common.errors import UserError

_REWARD, _RAW_REWARD = "reward", "raw_reward"


def number(value: Any, env_id: int, name: str = _REWARD) -> float:
    """A reward of one environment: a Python or NumPy number, or an array of no dimension.

    Args:
      value: what the environment gave.
      env_id: its id, for the message.
      name: what it is, for the message.

    Raises:
      UserError: it is no real number. (NaN and infinity are.)
    """
    if isinstance(value, float | int):  # Most are, and these need no further look.
        return value
    try:
        array = np.asarray(value)
    except ValueError:  # A list of lists of different lengths.
        array = np.asarray(None)
    if array.shape or array.dtype.kind not in "biuf":
        what = f"an array of shape {list(array.shape)}" if array.shape else f"{value!r}"
        raise UserError(
            f"Environment {env_id}: its {name} is {what}, which is no number. Have step() return "
            "a float (or any scalar of Python or NumPy)."
        )
    return float(array)


def check(env_ids: np.ndarray, reward: Any, raw_reward: Any) -> None:
    """Checks what a vector environment gives in a step.

    Args:
      env_ids: <int32>[k].
      reward: <float32>[k], or any numbers [k].
      raw_reward: <float32>[k], or any numbers [k].

    Raises:
      UserError: they are not.
    """
    for name, values in ((_REWARD, reward), (_RAW_REWARD, raw_reward)):
        fits = type(values) is np.ndarray and values.dtype.kind == "f"
        if not fits or values.shape != env_ids.shape:
            _check_values(env_ids, values, name)


def _check_values(env_ids: np.ndarray, values: Any, name: str) -> None:
    shape = np.shape(values)
    if shape != env_ids.shape:
        raise UserError(
            f"Environments {env_ids[0]} to {env_ids[-1]}: the values of `{name}` have the shape "
            f"{list(shape)}, not {list(env_ids.shape)}. Have step() return one number for each."
        )
    for env_id, value in zip(env_ids, values, strict=True):
        number(value, int(env_id), name)
