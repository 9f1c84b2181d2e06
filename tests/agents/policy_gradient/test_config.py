"""The sizes of a training step, from every combination of options."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seed_rl.agents.policy_gradient.config import (
    BATCH_MODES,
    REPEAT,
    SHUFFLE,
    OnPolicyConfig,
    StepSizes,
    step_sizes,
)
from seed_rl.common.errors import UserError


def test_by_default_a_step_takes_one_unroll_of_every_environment():
    config = OnPolicyConfig(batches_per_step=4)
    assert step_sizes(config, 32, 8) == StepSizes(32, 8, 4)


def test_a_batch_size_counts_the_unrolls_of_a_minibatch():
    config = OnPolicyConfig(batch_size=2, batches_per_step=4, batch_mode=SHUFFLE)
    assert step_sizes(config, 32, 100) == StepSizes(32, 8, 4)


def test_sizes_in_transitions():
    config = OnPolicyConfig(step_size_transitions=8192, batch_size_transitions=512)
    sizes = step_sizes(config, 20, 128)
    assert sizes == StepSizes(64, 128, 16)
    assert sizes.transitions == 8192


def test_minibatches_in_transitions_alone():
    config = OnPolicyConfig(batch_size_transitions=64)
    assert step_sizes(config, 32, 8) == StepSizes(32, 8, 4)


@pytest.mark.parametrize(
    ("config", "num_envs", "message"),
    [
        (OnPolicyConfig(step_size_transitions=100), 8, "8 training environments.*96 or 104"),
        (OnPolicyConfig(step_size_transitions=5), 8, "nearest sizes: 8"),
        (OnPolicyConfig(batch_size_transitions=100), 8, "256 transitions.*8 unrolls of 32.*64 or 1"),
        (OnPolicyConfig(batches_per_step=3), 8, "256 transitions cannot be split into 3.*2 or 4"),
        (
            OnPolicyConfig(batches_per_step=3, batch_mode=SHUFFLE),
            8,
            "8 unrolls cannot be split into 3 minibatches.*2 or 4.*batch_mode=split",
        ),
        (
            OnPolicyConfig(batches_per_step=16, batch_mode=REPEAT),
            8,
            "8 unrolls cannot be split into 16 minibatches.*: 8",
        ),
        (OnPolicyConfig(batch_size=4, batch_size_transitions=4), 8, "set one or the other"),
    ],
)
def test_sizes_that_do_not_divide_are_refused_with_sizes_that_do(config, num_envs, message):
    with pytest.raises(UserError, match=message):
        step_sizes(config, 32, num_envs)


@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 20),
    st.integers(0, 8),
    st.sampled_from(BATCH_MODES),
)
def test_accepted_sizes_always_divide(unroll_length, num_envs, batches, batch_size, mode):
    """What passes can be split, so that no training step fails later."""
    config = OnPolicyConfig(batches_per_step=batches, batch_size=batch_size, batch_mode=mode)
    try:
        sizes = step_sizes(config, unroll_length, num_envs)
    except UserError:
        return
    whole = mode in (REPEAT, SHUFFLE)
    assert (sizes.unrolls if whole else sizes.transitions) % sizes.batches == 0
    assert sizes.unrolls == (batch_size * batches or num_envs)
