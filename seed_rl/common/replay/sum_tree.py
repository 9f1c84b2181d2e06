"""Drawing from changing weights in O(log n) (no TensorFlow)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from seed_rl.common.replay import native


class SumTree:
    """Weights of `capacity` leaves, at first 0, and drawing leaves in proportion to them.

    A binary tree whose inner nodes hold the sum of their children (Schaul et al. 2016,
    Prioritized Experience Replay, appendix B.2.1). Sums are float64 and recomputed from the
    children, so no rounding error piles up. The replay has its own tree inside; this one is for
    other uses. Not thread-safe.
    """

    def __init__(self, capacity: int):
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}.")
        self._capacity = capacity
        self._handle = native.create("sum_tree_create", capacity)

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            native.library().seed_sum_tree_destroy(self._handle)

    def __len__(self) -> int:
        return self._capacity

    @property
    def total(self) -> float:
        """Sum of all weights."""
        return float(native.library().seed_sum_tree_total(self._handle))

    def set(self, leaves: npt.ArrayLike, weights: npt.ArrayLike) -> None:
        """Sets weights, in order: of several for one leaf the last one stays.

        Args:
          leaves: <int64>[n] in [0, capacity).
          weights: <float64>[n], finite and not negative.
        """
        leaves = self._leaves(leaves)
        weights = checked_weights(weights, leaves.shape, "weights")
        native.library().seed_sum_tree_set(
            self._handle, len(leaves), native.pointer(leaves), native.pointer(weights)
        )

    def get(self, leaves: npt.ArrayLike) -> np.ndarray:
        """The weights <float64>[n] of `leaves` <int64>[n]."""
        leaves = self._leaves(leaves)
        weights = np.empty(leaves.shape, np.float64)
        native.library().seed_sum_tree_get(
            self._handle, len(leaves), native.pointer(leaves), native.pointer(weights)
        )
        return weights

    def find(self, fractions: npt.ArrayLike) -> np.ndarray:
        """The leaves in which points fall when the weights are laid end to end.

        Args:
          fractions: <float64>[n] in [0, 1), of the total. Uniform random ones draw leaves in
            proportion to their weights.

        Returns:
          <int64>[n]; never a leaf of weight 0.

        Raises:
          ValueError: if the total is 0.
        """
        fractions = np.ascontiguousarray(fractions, np.float64)
        if not self.total > 0:
            raise ValueError("All weights are 0.")
        if not np.all((fractions >= 0) & (fractions < 1)):
            raise ValueError("fractions must be in [0, 1).")
        leaves = np.empty(fractions.shape, np.int64)
        native.library().seed_sum_tree_find(
            self._handle, len(fractions), native.pointer(fractions), native.pointer(leaves)
        )
        return leaves

    def _leaves(self, leaves: npt.ArrayLike) -> np.ndarray:
        result = np.ascontiguousarray(leaves, np.int64)
        if result.ndim != 1 or np.any((result < 0) | (result >= self._capacity)):
            raise ValueError(f"leaves must be a vector of numbers in [0, {self._capacity}).")
        return result


def checked_weights(values: npt.ArrayLike, shape: tuple[int, ...], name: str) -> np.ndarray:
    """`values` as <float64>.

    Raises:
      ValueError: if they have another shape, are negative or not finite.
    """
    result = np.ascontiguousarray(values, np.float64)
    if result.shape != shape:
        raise ValueError(f"{name} must have shape {list(shape)}, got {list(result.shape)}.")
    # One comparison finds NaN, infinity and negative numbers alike.
    if not np.all((result >= 0) & (result < np.inf)):
        bad = result[~((result >= 0) & (result < np.inf))][0]
        raise ValueError(f"{name} must be finite and not negative, got {bad}.")
    return result
