import numpy as np

from seed_rl.common import env_wrappers
from seed_rl.common.acting.spaces import ArraySpec


def test_flat_observations() -> None:
    """Keys in sorted order, everything float32, bounds where the specs have them."""
    observation = {"b": np.array([[1, 2], [3, 4]]), "a": np.float64(0.5)}
    flat = env_wrappers.flatten_and_concatenate_obs(observation)
    assert flat.dtype == np.float32 and flat.tolist() == [0.5, 1, 2, 3, 4]

    class Bounded:
        shape = (2, 2)
        minimum, maximum = np.array([[0, 1], [2, 3]]), 9.0

    box = env_wrappers.spec_to_box({"b": Bounded(), "a": ArraySpec((), np.dtype(np.float32))})
    assert box.shape == flat.shape and box.dtype == np.float32
    assert box.low.tolist() == [-np.inf, 0, 1, 2, 3]
    assert box.high.tolist() == [np.inf, 9, 9, 9, 9]
