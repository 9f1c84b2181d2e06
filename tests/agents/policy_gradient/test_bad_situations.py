"""User errors in the programs of the on-policy agent: one message, exit code 2."""

from __future__ import annotations

import subprocess

import pytest

from seed_rl.common.checkpoints import checkpoints
from tests.helpers.system_helpers import site
from tests.helpers.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

MAIN = "seed_rl.mujoco.ppo_main"
TOY = "--env_name=Toy-v0"
ODD = "--env_name=tests.helpers.odd_envs:"


@pytest.mark.parametrize(
    ("options", "messages"),
    [
        ([TOY, "--batches_per_step=7"], ["512 transitions", "7", "--batches_per_step=4 or 8"]),
        ([TOY, "--step_size_transitions=100"], ["8 training environments", "96 or 104"]),
        ([ODD + "TextActions"], ["The action space Text", "Box, Discrete"]),
        (
            [TOY, "--gin_bindings=ContinuousControlAgent.num_layers_rnn = 1"],
            ["recurrent", "--batch_mode=repeat", "shuffle"],
        ),
        ([TOY, "--gin_bindings=ppo.epsilom = 0.1"], ["Gin config", "Did you mean ppo.epsilon?"]),
        ([TOY, "--gin_config=pp.gin"], ["--gin_config=pp.gin does not exist"]),
        ([TOY, "--vf_coef=0.5"], ["write --baseline_cost=..., the weight of the squared error"]),
        (
            [TOY, "--clip_coef=0.5", "--gin_bindings=ppo.epsilon = 0.25"],
            ["--clip_range=0.5 and the gin config's ppo.epsilon = 0.25 set the same differently"],
        ),
        (
            [TOY, "--step_size_transitions=2048", "--unroll_length=16"],
            ["--unroll_length=16 contradicts --step_size_transitions=2048, which makes it 256"],
        ),
        (
            [TOY, "--batch_size=1000", "--unroll_length=1000000"],
            ["A batch of --batch_size=16,000 unrolls", "GB are available"],
        ),
    ],
)
def test_a_learner_that_cannot_begin_says_why(forks, repository, tmp_path, options, messages):
    result = forks.run(
        *("-m", MAIN, "--run_mode=learner", "--num_envs=8", "--env_batch_size=8"),
        *(f"--logdir={tmp_path}/run", f"--server_address=unix:{tmp_path}/socket", *options),
        cwd=repository,
    )
    assert result.returncode == 2, result.stdout + result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, result.stderr
    assert all(message in errors[0] for message in messages), errors
    assert "Traceback" not in result.stderr


def test_the_supervisor_shows_it_and_ends(repository, tmp_path):
    """Guards against restarting a learner that cannot start."""
    result = subprocess.run(
        [repository / "run_local.sh", "mujoco", "ppo", "1", "8", TOY, f"--logdir={tmp_path}/run"]
        + ["--gin_bindings=GAE.lamda_ = 0.9"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert result.returncode == 2, result.stdout + result.stderr
    shown = result.stdout + result.stderr
    assert shown.count("Did you mean GAE.lambda_?") == 1
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    ("options", "not_finite"),
    [
        ([TOY, "--gin_bindings=OptimizerConfig.learning_rate = 1e30"], "loss="),
        ([ODD + "HugeRewards"], "losses/value="),
    ],
)
def test_diverged_training_ends(tmp_path, socket_address, options, not_finite):
    """After many gradient steps each: the metrics are shown, and no checkpoint was replaced."""
    shared = (f"--server_address={socket_address}", "--num_envs=8", "--env_batch_size=8", *options)
    with site(tmp_path, socket_address) as place:
        learner = place.start(
            MAIN,
            *("--run_mode=learner", f"--logdir={place.logdir}", "--save_checkpoint_secs=1"),
            *("--unroll_length=4", "--batches_per_step=2", "--epochs_per_step=3"),
            *shared,
        )
        place.start(MAIN, "--run_mode=actor", *shared)
        assert learner.wait() == 2, learner.text()
        (error,) = learner.errors()
        assert "100 training steps in a row were skipped" in error
        assert not_finite in error.partition("Not finite in the last of them: ")[2]
        assert "Traceback" not in learner.text()
        assert place.progress().phase == "failed"
        assert len(checkpoints.list_checkpoints(place.logdir / "checkpoints")) <= 1
