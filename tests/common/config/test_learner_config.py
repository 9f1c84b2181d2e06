"""Options of the learner that single checks cannot judge."""

import pytest

from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.learner_config import LearnerConfig, validate
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError


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


@pytest.mark.parametrize(
    "addresses, index, batch_size, insecure, message",
    [
        ("a:1,b:2", 0, 8, False, "2 learners exchange gradients .* add --insecure"),
        ("a:1,b:2,c:3", 0, 8, True, "--batch_size=8 cannot be divided among 3 learners"),
        ("a:1,b", 0, 8, True, "'b' is not host:port"),
        ("a:1,a:1", 0, 8, True, "names an address twice"),
        ("a:1,b:2", 2, 8, True, "--learner_index=2 needs more than 2 addresses"),
        ("", 1, 8, True, "--learner_index=1 needs more than 1 addresses"),
    ],
)
def test_learners_that_cannot_train_together(addresses, index, batch_size, insecure, message):
    """Guards TensorFlow's unprotected server from starting by mistake, too."""
    with pytest.raises(UserError, match=message):
        config = DeviceConfig(learner_addresses=addresses, learner_index=index)
        config.check_learners(batch_size, insecure)


def test_learners_have_seeds_of_their_own():
    """Guards against equal environments: ids of environments count from 0 for each learner."""
    configs = [DeviceConfig(learner_addresses="a:1,b:2,c:3", learner_index=i) for i in range(3)]
    assert [config.own_seed(None) for config in configs] == [None] * 3
    first, *others = (config.own_seed(7) for config in configs)
    assert first == 7 and len({first, *others}) == 3
