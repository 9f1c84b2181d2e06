"""The sizes of a training step, from every combination of options."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seed_rl.agents.policy_gradient.config import (
    BATCH_MODES,
    REPEAT,
    SHUFFLE,
    SPLIT,
    MinibatchSettings,
    OnPolicyConfig,
    StepConfig,
    settled_sizes,
    step_sizes,
)
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError


@pytest.mark.parametrize(
    ("config", "mode", "batches", "sizes", "expected"),
    [
        (OnPolicyConfig(), SPLIT, 4, (32, 8), (32, 8, 4)),  # One unroll of every environment.
        (OnPolicyConfig(batch_size=2), SHUFFLE, 4, (32, 100), (32, 8, 4)),
        (OnPolicyConfig(batch_size_transitions=64), SPLIT, 1, (32, 8), (32, 8, 4)),
        (
            OnPolicyConfig(step_size_transitions=8192, batch_size_transitions=512),
            *(SPLIT, 1, (20, 128), (64, 128, 16)),
        ),
        # A number of 0, as existing programs pass it, is derived.
        (OnPolicyConfig(), SPLIT, 0, (32, 8), (32, 8, 1)),
        (OnPolicyConfig(batch_size=2), SPLIT, 0, (32, 8), (32, 8, 4)),
        (OnPolicyConfig(batch_size=3), SPLIT, 0, (32, 8), (32, 6, 2)),
        (OnPolicyConfig(batch_size=9), SPLIT, 0, (32, 8), (32, 9, 1)),
        (OnPolicyConfig(batch_size_transitions=64), SPLIT, 0, (32, 8), (32, 8, 4)),
    ],
)
def test_sizes_of_a_step(config, mode, batches, sizes, expected):
    """From a minibatch's number of unrolls, or numbers of transitions."""
    *unrolls, number = expected
    settled = step_sizes(config, MinibatchSettings(mode, batches_per_step=batches), *sizes)
    assert settled == (*unrolls, MinibatchSettings(mode, batches_per_step=number))


@pytest.mark.parametrize("step", [StepConfig(), StepConfig(step_size_transitions=64)])
def test_evaluation_environments_must_leave_some(step):
    """Guards sizes that are divided among the training environments, before other checks run."""
    none = RunConfig(num_envs=2, num_eval_envs=2)
    with pytest.raises(UserError, match="--num_eval_envs=2 leaves no environment to train on"):
        settled_sizes(step, MinibatchSettings(), none, LearnerConfig(), DeviceConfig())


def test_a_job_has_the_sizes():
    """Guards a learner whose unrolls or batches are those of a preset, not of the step."""
    config = OnPolicyConfig(step_size_transitions=8192, batch_size_transitions=512)
    settings, learner = MinibatchSettings(SPLIT), LearnerConfig(batch_size=1, unroll_length=20)
    run, devices = (
        RunConfig(num_envs=72, num_eval_envs=8),
        DeviceConfig(learner_addresses="a:1,b:2"),
    )
    settled, minibatches, learner = settled_sizes(config, settings, run, learner, devices)
    assert settled == config
    assert minibatches == MinibatchSettings(SPLIT, batches_per_step=16)
    assert (learner.unroll_length, learner.batch_size) == (64, 128)


@pytest.mark.parametrize(
    ("config", "mode", "batches", "message"),
    [
        (OnPolicyConfig(step_size_transitions=100), SPLIT, 1, "8 training envir.*: 96 or 104"),
        (OnPolicyConfig(step_size_transitions=5), SPLIT, 1, "nearest sizes: 8"),
        (OnPolicyConfig(batch_size_transitions=100), SPLIT, 1, "256 tra.*8 unr.* 32.*64 or 128"),
        (OnPolicyConfig(), SPLIT, 3, "256 transitions.*batches_per_step=2 or 4"),
        (OnPolicyConfig(), SHUFFLE, 3, "8 unrolls.*batches_per_step=2 or 4"),
        (OnPolicyConfig(), REPEAT, 16, "8 unrolls.*batches_per_step=8;"),
        (OnPolicyConfig(batch_size=4, batch_size_transitions=4), SPLIT, 1, "one or the other"),
    ],
)
def test_sizes_that_do_not_divide_are_refused_with_sizes_that_do(config, mode, batches, message):
    with pytest.raises(UserError, match=message):
        step_sizes(config, MinibatchSettings(mode, batches_per_step=batches), 32, 8)


@given(st.integers(1, 300), st.sampled_from([32, 64, 100]))
def test_the_sizes_of_a_preset_fit_any_number_of_environments(num_envs, minibatch):
    """Evaluation environments, say, must not make the defaults an error."""
    config = OnPolicyConfig(step_size_transitions=2048, batch_size_transitions=minibatch)
    sizes = step_sizes(config, MinibatchSettings(SPLIT), 20, num_envs, about=True)
    total = sizes.unroll_length * sizes.unrolls
    assert sizes.unrolls == num_envs
    assert sizes.minibatches.minibatch_size(num_envs, sizes.unroll_length) == minibatch
    nearest = min(
        (n * num_envs for n in range(1, 4000) if n * num_envs % minibatch == 0),
        key=lambda size: abs(size - 2048),
    )
    assert abs(total - 2048) == abs(nearest - 2048)


@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 20),
    st.integers(0, 8),
    st.sampled_from(BATCH_MODES),
)
def test_accepted_sizes_always_divide(unroll_length, num_envs, batches, batch_size, mode):
    """What passes can be split, so that no training step fails later."""
    settings = MinibatchSettings(mode, batches_per_step=batches)
    config = OnPolicyConfig(batch_size=batch_size)
    try:
        sizes = step_sizes(config, settings, unroll_length, num_envs)
    except UserError:
        return
    whole = mode in (REPEAT, SHUFFLE)
    assert sizes.unrolls * (1 if whole else sizes.unroll_length) % batches == 0
    assert sizes.unrolls == (batch_size * batches or num_envs)
