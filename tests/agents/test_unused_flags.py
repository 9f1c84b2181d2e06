"""Flags of agents and optimizers that would have no effect are refused by the real programs."""

from __future__ import annotations

import pytest

from tests.helpers import PROGRAMS, errors

VTRACE, R2D2, SAC = (f"seed_rl.gym.{agent}_main" for agent in ("vtrace", "r2d2", "sac"))
FIXED = "--entropy_cost_adjustment_speed=0"


@pytest.fixture
def run(forks, tmp_path):
    return lambda module, *flags, code: forks.run(
        PROGRAMS / "network_of_flags.py",
        module,
        "vector",
        f"--logdir={tmp_path}",
        "--lstm_size=4",
        *flags,
        code=code,
    )


@pytest.mark.parametrize(
    ("module", "flags", "message"),
    [
        (
            VTRACE,
            ["--target_entropy=0.5", FIXED],
            f"--target_entropy would have no effect: {FIXED}",
        ),
        (SAC, ["--target_entropy=0.5", FIXED], f"--target_entropy would have no effect: {FIXED}"),
        (
            VTRACE,
            ["--entropy_cost_adjustment_speed=5"],
            "--entropy_cost_adjustment_speed would have no effect: --target_entropy",
        ),
        (VTRACE, ["--popart_beta=0.1"], "--popart_beta would have no effect: --popart is not"),
        (
            SAC,
            ["--her_substitution_probability=0.5"],
            "--her_substitution_probability would have no effect: --her_window_length=0",
        ),
        (R2D2, ["--trace_tolerance=0.1"], "--trace_tolerance would have no effect: --trace_lambda"),
        (
            R2D2,
            ["--novalue_function_rescaling", "--value_function_rescaling_epsilon=0.1"],
            "--value_function_rescaling_epsilon would have no effect",
        ),
        (
            R2D2,
            ["--priority_exponent=0", "--importance_sampling_exponent=0.5"],
            "--importance_sampling_exponent would have no effect: --priority_exponent=0",
        ),
        (SAC, ["--importance_sampling_exponent=0.5"], "effect: SAC samples uniformly"),
        (
            R2D2,
            ["--n_steps=3", "--trace_lambda=0.5"],
            "--n_steps would have no effect: --trace_lambda uses",
        ),
        (
            VTRACE,
            ["--rmsprop_decay=0.9", "--rmsprop_momentum=0.5"],
            "--rmsprop_decay and --rmsprop_momentum would have no effect: --optimizer=adam",
        ),
        (
            VTRACE,
            ["--adam_beta1=0", "--optimizer=rmsprop"],
            "--adam_beta1 would have no effect: --optimizer=rmsprop",
        ),
    ],
)
def test_flags_without_effect_are_refused(run, module, flags, message):
    (error,) = errors(run(module, *flags, code=2).stderr)
    assert message in error


@pytest.mark.parametrize(
    ("module", "flags"),
    [
        (VTRACE, ["--target_entropy=0.5", "--popart", "--popart_beta=0.1", "--adam_beta1=0"]),
        # The defaults, as flag files and records of runs have them.
        (VTRACE, ["--popart_beta=3e-4", "--rmsprop_decay=0.99", "--rmsprop_momentum=0", FIXED]),
        (VTRACE, ["--optimizer=rmsprop", "--rmsprop_decay=0.9", "--adam_beta1=0.9"]),
        (R2D2, ["--trace_tolerance=0.1", "--trace_lambda=0.5"]),
    ],
)
def test_flags_with_an_effect_are_not(run, module, flags):
    run(module, *flags, code=0)


def test_defaults_of_sac_are_not(forks):
    """Its network has no state that the other test could show."""
    flags = "--her_substitution_probability=0.8", FIXED, "--run_mode=learner", "--only_check_args"
    forks.run("-m", SAC, *flags, code=0)
