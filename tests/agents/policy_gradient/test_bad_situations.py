"""User errors in the programs of the on-policy agent: one message, exit code 2."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

MAIN = "seed_rl.mujoco.ppo_main"
TOY = "--env_name=Toy-v0"


@pytest.mark.parametrize(
    ("options", "messages"),
    [
        (
            [TOY, "--gin_bindings=ContinuousControlAgent.num_layers_rnn = 1"],
            ["recurrent", "--batch_mode=repeat", "shuffle"],
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
