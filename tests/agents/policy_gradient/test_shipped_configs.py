"""Shipped configs reach the known optimum of toy environments."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from seed_rl import experiment
from seed_rl.agents.policy_gradient.config import MinibatchSettings
from seed_rl.common.run_files import returns_log, run_record
from seed_rl.mujoco import toy_env
from tests.helpers.events import read_scalars
from tests.helpers.on_policy_runs import make_job

pytestmark = pytest.mark.slow

FASTER = "OptimizerConfig.learning_rate = 3e-3"  # Toy problems need few steps, but large ones.


class FollowEnv(gymnasium.Env):
    """The action must equal the observed target: the optimal return of 4 steps is 4.

    Uniformly random actions have a mean return of 4 (1 - 2/3), constant ones of at most 2.
    """

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._step = 0
        return self._observe(), {}

    def step(self, action):
        reward = 1.0 - abs(float(action[0] - self._target[0]))
        self._step += 1
        return self._observe(), reward, self._step == 4, False, {}

    def _observe(self):
        self._target = self.np_random.uniform(-1.0, 1.0, (1,)).astype(np.float32)
        return self._target


@pytest.mark.parametrize(
    ("config", "epochs", "frames"),
    [
        ("pg", 1, 10_000),
        pytest.param("vtrace", 5, 10_000, marks=pytest.mark.nightly),
        pytest.param("awr", 5, 10_000, marks=pytest.mark.nightly),
        pytest.param("vmpo", 5, 25_000, marks=pytest.mark.nightly),
    ],
)
def test_the_cue_is_named(tmp_path, config, epochs, frames):
    """The optimum is 3, chance gives 1. Guards each policy loss, from the file to the returns."""
    job = make_job(
        tmp_path,
        f"seed_rl/mujoco/gin/{config}.gin",
        [FASTER],
        toy_env.ToyEnv,
        frames,
        MinibatchSettings("split", epochs, batches_per_step=4),
    )
    returns = experiment.run(job, callbacks=()).returns
    assert returns[:100].mean() < 2  # It was not right from the beginning.
    assert returns[-300:].mean() > 0.97 * 3


@pytest.mark.parametrize(
    ("config", "frames"),
    [("ppo", 20_000), pytest.param("vmpo", 40_000, marks=pytest.mark.nightly)],
)
def test_the_target_is_followed(tmp_path, config, frames):
    """Continuous actions: means and deviations; evaluation takes the means."""
    job = make_job(
        tmp_path,
        f"seed_rl/mujoco/gin/{config}.gin",
        [FASTER],
        FollowEnv,
        frames,
        MinibatchSettings("split", 5, batches_per_step=4),
        num_envs=36,
        env_batch_size=36,
        num_eval_envs=4,
    )
    result = experiment.run(job, callbacks=())
    greedy = np.array([row.episode_return for row in result.episodes if row.evaluation])
    assert greedy[:20].mean() < 3
    assert greedy[-50:].mean() > 0.9 * 4
    assert result.returns[-300:].mean() > 0.85 * 4


@pytest.mark.nightly
def test_the_cue_is_remembered(tmp_path):
    """A recurrent network, trained on shuffled whole unrolls: 1 with memory, 1/3 without."""
    job = make_job(
        tmp_path,
        "seed_rl/mujoco/gin/ppo.gin",
        [FASTER, "ContinuousControlAgent.num_layers_rnn = 1"],
        toy_env.ToyMemoryEnv,
        12_000,
        MinibatchSettings("shuffle", 5, batches_per_step=4),
    )
    assert experiment.run(job, callbacks=()).returns[-300:].mean() > 0.95


def test_atari_with_an_lstm(train_to_end):
    """The real programs: convolutions, frame stacks, a recurrent state; no step is skipped."""
    pytest.importorskip("ale_py")
    binding = "ppo.epsilon = 0.125"
    logdir = train_to_end(
        *("seed_rl.atari.ppo_main", 8 * 128 * 4 * 2),
        *("--game=Pong", f"--gin_bindings={binding}", "--log_period_secs=0.1"),
        *("--lstm_sizes=32", "--batch_mode=shuffle", "--batches_per_step=4", "--gamma=0.875"),
    )
    record = run_record.read(logdir)
    assert (record["clip_range"], record["gin"]["ppo.epsilon"]) == (0.125, "0.125")
    assert record["gin"]["ConvNetworkConfig.lstm_sizes"] == "(32,)"
    assert record["gin"]["GeneralizedOnPolicyLoss.discount_factor"] == "0.875"
    metrics = read_scalars(logdir)
    assert {"charts/loss", "train/losses/policy", "train/losses/value"} <= metrics.keys()
    assert all(np.isfinite(values).all() for values in metrics.values())
    assert metrics["train/skipped_fraction"].max() == 0
    assert metrics["train/policy/entropy"][-1] > 0
    assert returns_log.read(logdir / returns_log.FILE_NAME) == []  # Games are longer.
