"""Runs of the on-policy agent: resumed, loaded, played."""

from __future__ import annotations

import re

import numpy as np
import pytest

from seed_rl import experiment
from seed_rl.agents.policy_gradient import gin_config
from seed_rl.agents.policy_gradient.config import MinibatchSettings
from seed_rl.mujoco import toy_env
from tests.helpers import errors
from tests.helpers.on_policy_runs import make_job

pytestmark = pytest.mark.slow

FASTER = "OptimizerConfig.learning_rate = 3e-3"
FRAMES = 8192  # 16 training steps.


def job_in(logdir):
    return make_job(
        logdir,
        "seed_rl/mujoco/gin/ppo.gin",
        [FASTER],
        toy_env.ToyEnv,
        FRAMES,
        MinibatchSettings("split", 5, batches_per_step=4),
    )


def state(job):
    """All variables of network and loss: <float>[...] in order."""
    algorithm = job.algorithm
    return [
        v.numpy() for part in (algorithm.network, algorithm.loss_module) for v in part.variables
    ]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(job, result) after training on Toy-v0."""
    job = job_in(tmp_path_factory.mktemp("trained"))
    return job, experiment.run(job, callbacks=())


def test_a_resumed_run_has_its_statistics(trained):
    """Weights, statistics of observations, and those of PopArt; a new agent has others."""
    job, result = trained
    again = job_in(result.logdir)
    assert not all(map(np.array_equal, state(again), state(job)))
    learner = again.create_learner()
    assert learner.finished
    learner.train()  # Ends at once.
    assert len(state(again)) == len(state(job)) > 16
    for restored, saved in zip(state(again), state(job), strict=True):
        np.testing.assert_array_equal(restored, saved)
    counts = [v.numpy() for v in again.algorithm.loss_module.variables if v.shape.rank == 0]
    assert FRAMES // (32 * 16) in counts  # Training steps whose targets PopArt has seen.


def test_a_network_that_the_minibatches_do_not_suit(forks, repository, tmp_path):
    """Guards the refusal of a step that is traced late: one line, before any actor comes."""
    result = forks.run(
        *("-m", "seed_rl.mujoco.ppo_main", "--run_mode=learner", "--num_envs=8"),
        *("--env_batch_size=8", "--env_name=Toy-v0", f"--logdir={tmp_path}/run"),
        f"--server_address=unix:{tmp_path}/socket",
        "--gin_bindings=ContinuousControlAgent.num_layers_rnn = 1",
        cwd=repository,
        code=2,
    )
    (error,) = errors(result.stderr)
    assert all(word in error for word in ("recurrent", "--batch_mode=repeat", "shuffle"))
    assert "Traceback" not in result.stderr


def test_a_loaded_policy_names_the_cues(trained):
    policy = experiment.load_policy(trained[1].logdir)
    cues = np.eye(3, dtype=np.float32)
    actions, _ = policy(cues, policy.initial_state(3), np.zeros(3, np.float32))
    assert list(actions) == [0, 1, 2]


def test_a_run_is_played_as_it_was_trained(forks, tmp_path, train_to_end):
    """From another directory, with the gin config and bindings that its record names."""
    layers = "ContinuousControlAgent.num_units_policy = 20"
    logdir = train_to_end(
        *("seed_rl.mujoco.ppo_main", 10_240),
        *("--env_name=Toy-v0", f"--gin_bindings={FASTER}", f"--gin_bindings={layers}"),
        *("--unroll_length=32", "--batches_per_step=2", "--epochs_per_step=5"),
        *("--num_eval_envs=2", "--jit=false"),
    )
    assert layers in (logdir / gin_config.OPERATIVE_FILE).read_text()
    evaluated = [row for row in experiment.read_result(logdir).episodes if row.evaluation]
    assert {row.env_id for row in evaluated} == {6, 7}
    assert np.mean([row.episode_return for row in evaluated[-20:]]) == 3
    result = forks.run("-m", "seed_rl.play", logdir, "--episodes=5", cwd=tmp_path, code=0)
    assert re.findall(r"│\s+\d+ │\s+(\S+) │\s+(\S+) │", result.stdout) == [("3", "3")] * 5
    assert "without effect" not in result.stderr  # Of settings that nobody has typed.
