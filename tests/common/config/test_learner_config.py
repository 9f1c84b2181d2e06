"""Options of the learner that single checks cannot judge."""

import pytest

from seed_rl.common.config.learner_config import LearnerConfig, validate
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError


@pytest.mark.parametrize("asked, capacity", [(-1, 8), (0, 8), (1, 8), (20, 20)])
def test_the_queue_holds_a_batch_at_least(asked, capacity):
    """Guards against inference waiting for training while training waits for a whole batch."""
    assert LearnerConfig(batch_size=8, unroll_queue_size=asked).queue_capacity() == capacity


@pytest.mark.parametrize(
    "run, learner, message",
    [
        (dict(num_eval_envs=4), {}, "--num_eval_envs=4 leaves no environment to train on"),
        (dict(env_batch_size=8), {}, "--env_batch_size=8 is more than --num_envs=4"),
        (
            dict(env_batch_size=4),
            dict(inference_batch_size=3),
            "--inference_batch_size=3 is less than --env_batch_size=4",
        ),
        ({}, dict(batch_size=7), "--batch_size=7 cannot be divided among 2"),
    ],
)
def test_options_that_do_not_fit_are_named(run, learner, message):
    with pytest.raises(UserError, match=message):
        validate(RunConfig(num_envs=4, **run), LearnerConfig(**learner), num_replicas=2)


def test_options_that_fit():
    run = RunConfig(num_envs=4, env_batch_size=4, num_eval_envs=1)
    validate(run, LearnerConfig(inference_batch_size=4, batch_size=6), num_replicas=2)
