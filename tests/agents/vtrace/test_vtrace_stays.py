"""V-trace keeps what it has learned."""

import numpy as np
import pytest

import seed_rl
from seed_rl.common.run_files import returns_log


@pytest.mark.nightly
def test_cartpole_stays_learned_with_the_defaults_of_gym_vtrace(tmp_path):
    """Guards the preset: with ReLUs, more weight on the values and no cost of divergence, the mean
    of a hundred episodes does not reach 475 in these frames.
    """
    sizes = {"actors": 2, "envs": 8, "frames": 320_000}
    seed_rl.train(
        "vtrace", "CartPole-v1", **sizes, seed=1, reward_scaling=0.05, logdir=tmp_path / "run"
    )
    returns = [row.raw_return for row in returns_log.read(tmp_path / "run" / "returns.csv")]
    means = np.convolve(returns, np.full(100, 0.01), "valid")
    learned = np.flatnonzero(means >= 475)
    assert len(learned), f"it was never learned: {means.max()}"
    assert means[learned[0] :].min() >= 450
