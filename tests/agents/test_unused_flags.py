"""Flags of agents and their parts in the real programs: each has an effect, or is refused."""

from __future__ import annotations

import json

import pytest

from seed_rl.common.config.network_config import MLPNetworkConfig
from seed_rl.common.errors import UserError
from tests.helpers import PROGRAMS, errors

VTRACE, R2D2, SAC = (f"seed_rl.gym.{agent}_main" for agent in ("vtrace", "r2d2", "sac"))
FIXED = "--entropy_cost_adjustment_speed=0"


@pytest.fixture
def run(forks, tmp_path):
    program = PROGRAMS / "network_of_flags.py"
    return lambda *arguments, code: forks.run(
        program, *arguments, f"--logdir={tmp_path}", code=code
    )


@pytest.mark.parametrize(
    ("space", "flags", "layers"),
    [
        ("vector", ["--lstm_size=6"], [6]),
        ("vector", ["--lstm_sizes=6,5", "--mlp_sizes=4"], [6, 5]),
        ("image", ["--lstm_sizes=6,5", "--torso=impala_shallow"], [6, 5]),
        ("image", ["--lstm_size=0", "--stack_size=2"], []),
        ("both", ["--lstm_size=6", "--mlp_sizes=4", "--torso=impala_shallow"], [6]),
    ],
)
def test_one_flag_makes_the_lstm_of_any_network(run, space, flags, layers):
    """Guards either spelling of the flag, for images, vectors and nests of both."""
    result = run(VTRACE, space, *flags, code=0)
    assert json.loads(result.stdout.splitlines()[-1]) == layers


@pytest.mark.parametrize(
    ("module", "space", "flags", "refused", "why"),
    [
        (VTRACE, "image", "--mlp_sizes=32", "--mlp_sizes", "observations are"),
        (VTRACE, "image", "--mlp_activation=relu", "--mlp_activation", "observations are"),
        (VTRACE, "vector", "--torso=impala_deep", "--torso", "observations are"),
        (R2D2, "image", "--mlp_sizes=32", "--mlp_sizes", "observations are"),
        (
            R2D2,
            "vector",
            "--stack_size=4 --torso=impala_deep",
            "--torso and --stack_size",
            "observations are",
        ),
        (VTRACE, "vector", f"--target_entropy=0.5 {FIXED}", "--target_entropy", FIXED),
        (SAC, "vector", f"--target_entropy=0.5 {FIXED}", "--target_entropy", FIXED),
        (
            *(VTRACE, "vector", "--entropy_cost_adjustment_speed=5"),
            *("--entropy_cost_adjustment_speed", "--target_entropy"),
        ),
        (VTRACE, "vector", "--popart_beta=0.1", "--popart_beta", "--popart is not"),
        (
            *(SAC, "vector", "--her_substitution_probability=0.5"),
            *("--her_substitution_probability", "--her_window_length=0"),
        ),
        (R2D2, "vector", "--trace_tolerance=0.1", "--trace_tolerance", "--trace_lambda"),
        (
            *(R2D2, "vector", "--novalue_function_rescaling --value_function_rescaling_epsilon=1"),
            *("--value_function_rescaling_epsilon", ""),
        ),
        (
            *(R2D2, "vector", "--priority_exponent=0 --importance_sampling_exponent=0.5"),
            *("--importance_sampling_exponent", "--priority_exponent=0"),
        ),
        (
            *(SAC, "vector", "--importance_sampling_exponent=0.5"),
            *("--importance_sampling_exponent", "SAC samples uniformly"),
        ),
        (R2D2, "vector", "--n_steps=3 --trace_lambda=0.5", "--n_steps", "--trace_lambda uses"),
        (
            *(VTRACE, "vector", "--rmsprop_decay=0.9 --rmsprop_momentum=0.5"),
            *("--rmsprop_decay and --rmsprop_momentum", "--optimizer=adam"),
        ),
        (VTRACE, "vector", "--adam_beta1=0 --optimizer=rmsprop", "--adam_beta1", "--optimizer=rms"),
    ],
)
def test_flags_without_effect_are_refused(run, module, space, flags, refused, why):
    (error,) = errors(run(module, space, *flags.split(), code=2).stderr)
    assert f"{refused} would have no effect: {why}" in error
    assert ("Box(" in error) == ("observations are" in error)  # Says what they are.


@pytest.mark.parametrize(
    ("module", "flags"),
    [
        (VTRACE, "--target_entropy=0.5 --popart --popart_beta=0.1 --adam_beta1=0"),
        # The defaults, as flag files and records of runs have them.
        (VTRACE, f"--popart_beta=3e-4 --rmsprop_decay=0.99 --rmsprop_momentum=0 {FIXED}"),
        (VTRACE, "--optimizer=rmsprop --rmsprop_decay=0.9 --adam_beta1=0.9"),
        (R2D2, "--trace_tolerance=0.1 --trace_lambda=0.5"),
    ],
)
def test_flags_with_an_effect_are_not(run, module, flags):
    run(module, "vector", "--lstm_size=4", *flags.split(), code=0)


def test_defaults_of_sac_are_not(forks):
    """Its network has no state that the other test could show."""
    flags = "--her_substitution_probability=0.8", FIXED, "--run_mode=learner", "--only_check_args"
    forks.run("-m", SAC, *flags, code=0)


def test_impossible_sizes_are_refused():
    with pytest.raises(UserError, match="mlp_sizes must be at least 1, not 0"):
        MLPNetworkConfig(mlp_sizes=(64, 0))
    with pytest.raises(UserError, match="lstm_sizes must be at least 0, not -1"):
        MLPNetworkConfig(lstm_sizes=(-1,))
