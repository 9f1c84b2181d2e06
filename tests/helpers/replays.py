"""Looks into replays."""

import numpy as np

from seed_rl.common import nest
from seed_rl.common.replay.storage import UnrollStorage


def stored(storage: UnrollStorage, keys: np.ndarray) -> tuple[nest.Nest, np.ndarray]:
    """Time-major unrolls and priorities of `keys` <int64>[n], which must be in `storage`."""
    snapshot = storage.snapshot()
    size = len(snapshot.priorities)
    uniform = UnrollStorage(storage.layout, size, priority_exponent=0.0)
    for segment in snapshot.segments():
        uniform.restore_segment(segment)
    uniform.restore_entries(snapshot.priorities, snapshot.inserted_at)
    # Drawn by slot: the remainder of the key.
    unrolls, drawn, _, _ = uniform.draw((keys % size + 0.5) / size)
    np.testing.assert_array_equal(drawn, keys)
    return unrolls, snapshot.priorities[keys - snapshot.oldest_key]
