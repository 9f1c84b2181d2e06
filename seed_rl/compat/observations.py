"""Nested observations as vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from seed_rl.common import nest


def spec_to_box(spec: Any) -> spaces.Box:
    """One flat `Box` for a nest of array specifications.

    Args:
      spec: nest of objects with `shape` and optionally `minimum` and `maximum` (such as dm_env's
        BoundedArray).

    Returns:
      A `Box` <float32>[n] for the concatenation of all arrays.
    """
    lows: list[np.ndarray] = []
    highs: list[np.ndarray] = []
    for leaf in nest.flatten(spec):
        size = int(np.prod(leaf.shape))
        bounds = getattr(leaf, "minimum", -np.inf), getattr(leaf, "maximum", np.inf)
        for bound, collected in zip(bounds, (lows, highs), strict=True):
            collected.append(np.broadcast_to(bound, leaf.shape).reshape(size))
    low, high = np.concatenate(lows), np.concatenate(highs)
    return spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)


def flatten_and_concatenate_obs(obs_dict: Any) -> np.ndarray:
    """Concatenates all arrays of a nest to <float32>[n], in the order of `spec_to_box`."""
    arrays = [np.asarray(leaf, np.float32).reshape(-1) for leaf in nest.flatten(obs_dict)]
    return np.concatenate(arrays)
