"""R2D2 learns, from environments to evaluation returns, all parts together."""

import gymnasium
import numpy as np
import pytest

from seed_rl.agents.r2d2.config import QNetworkConfig, R2D2Config
from seed_rl.common.replay import ReplayConfig
from seed_rl.mujoco.toy_env import ToyMemoryEnv
from tests.helpers.in_process import Run

NETWORK = QNetworkConfig(lstm_size=32, head_size=32, mlp_sizes=(32,))


def best_evaluation(run, wanted, min_episodes, max_steps):
    """Trains until evaluation returns are as wanted; gives the best mean of all periods."""
    best = -np.inf
    run.start()
    run.act()
    for step in range(1, max_steps + 1):
        run.train()
        if step % 50 == 0:
            episodes = run.store.episodes()
            returns = episodes.returns[episodes.env_ids >= len(run.env.env_ids) - 4]
            if len(returns) >= min_episodes:
                best = max(best, float(np.mean(returns)))
            if best >= wanted:
                break
    assert run.actor_error is None
    return best


@pytest.mark.slow
def test_a_cue_is_remembered_across_burn_in():
    """One of three cues at the first step says which action pays ten steps later.

    Without memory the mean return is 1/3 at best. Episodes of 11 steps against unrolls that begin
    every 15 steps, after 5 of burn-in: for many, the cue is in burn-in or in the unroll before,
    so only stored states and burn-in can reveal it.
    """
    r2d2 = R2D2Config(
        discounting=0.97, n_steps=5, burn_in=5, update_target_every_n_step=50, eval_epsilon=0.0
    )
    replay = ReplayConfig(replay_buffer_size=2000, replay_buffer_min_size=100, replay_ratio=2.0)
    with Run(
        lambda: ToyMemoryEnv(horizon=11, n_actions=3),
        r2d2,
        replay,
        NETWORK,
        num_envs=20,
        num_eval_envs=4,
        unroll_length=15,
        batch_size=32,
        learning_rate=3e-3,
    ) as run:
        assert best_evaluation(run, 0.95, min_episodes=100, max_steps=2000) >= 0.95


@pytest.mark.nightly
def test_cart_pole():
    """Guards learning from returns that reach far beyond an unroll, in episodes of any length."""
    r2d2 = R2D2Config(
        discounting=0.99, n_steps=5, burn_in=5, update_target_every_n_step=100, eval_epsilon=0.0
    )
    replay = ReplayConfig(replay_buffer_size=5000, replay_buffer_min_size=100, replay_ratio=4.0)
    with Run(
        lambda: gymnasium.make("CartPole-v1"),
        r2d2,
        replay,
        NETWORK,
        num_envs=16,
        num_eval_envs=4,
        unroll_length=10,
        batch_size=32,
        learning_rate=2e-3,
    ) as run:
        # Random play gives 22, always the same action 9. Usually 200 to 500 steps suffice.
        assert best_evaluation(run, 100.0, min_episodes=3, max_steps=3000) >= 100.0
