"""Converts rewards to numbers, and names environments in messages.

NumPy would silently convert None to NaN and a one-element array to a number, and it would look as
if the agent were at fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from seed_rl.common.errors import UserError

_REWARD = "reward"


def number(value: Any, env_id: int | None = None, name: str = _REWARD) -> float:
    """Converts one environment's reward to a number.

    Args:
      value: what the environment returned: a Python or NumPy number, or an array of shape [].
      env_id: id of the environment, for the message; None: not known.
      name: name of the value, for the message.

    Raises:
      UserError: it is not a real number. (NaN and infinity are.)
    """
    if isinstance(value, (float, int, np.floating)):  # The common case, without an array.
        return float(value)
    try:
        array = np.asarray(value)
    except ValueError:  # For example, nested lists of different lengths.
        array = np.asarray(None)
    if array.shape or array.dtype.kind not in "biuf":
        what = f"an array of shape {list(array.shape)}" if array.shape else f"{value!r}"
        owner = "The environment" if env_id is None else f"Environment {env_id}"
        raise UserError(
            f"{owner}: its {name} is {what}, which is not a number. Make step() return a float "
            "(or any Python or NumPy scalar)."
        )
    return float(array)


def numbers(env_ids: np.ndarray, values: Any, name: str = _REWARD) -> np.ndarray:
    """Converts the rewards of several environments to <float32>[k]; such an array is not copied.

    Args:
      env_ids: <int32>[k].
      values: any numbers [k].
      name: name of the values, for the message.

    Raises:
      UserError: they are not numbers [k].
    """
    array = np.asarray(values)
    if array.shape != env_ids.shape:
        raise UserError(
            f"Environments {describe_ids(env_ids)}: `{name}` has shape {list(array.shape)}, not "
            f"{list(env_ids.shape)}. Make step() return one number per environment."
        )
    if array.dtype.kind not in "biuf":
        pairs = zip(env_ids, array, strict=True)
        array = np.array([number(value, int(env_id), name) for env_id, value in pairs])
    return array.astype(np.float32, copy=False)


def describe_ids(env_ids: Sequence[int] | np.ndarray) -> str:
    """Ids in ascending order, for messages: "3" or "3 to 5" or "3, 5"."""
    first, last = int(env_ids[0]), int(env_ids[-1])
    if last - first >= len(env_ids):
        return ", ".join(str(int(env_id)) for env_id in env_ids)
    return str(first) if first == last else f"{first} to {last}"
