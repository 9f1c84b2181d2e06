"""Flags of networks in the real programs: each has an effect, or is refused."""

from __future__ import annotations

import functools
import json

import pytest

from seed_rl.common.config.network_config import MLPNetworkConfig
from seed_rl.common.errors import UserError
from tests.helpers import PROGRAMS, errors

VTRACE, R2D2 = "seed_rl.gym.vtrace_main", "seed_rl.gym.r2d2_main"


@pytest.fixture
def run(forks):
    return functools.partial(forks.run, PROGRAMS / "network_of_flags.py")


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
    ("module", "space", "flags", "message"),
    [
        (VTRACE, "image", ["--mlp_sizes=32"], "--mlp_sizes would have no effect: observations are"),
        (VTRACE, "image", ["--mlp_activation=relu"], "--mlp_activation would have no effect"),
        (VTRACE, "vector", ["--torso=impala_deep"], "--torso would have no effect"),
        (R2D2, "image", ["--mlp_sizes=32"], "--mlp_sizes would have no effect"),
        (R2D2, "vector", ["--stack_size=4", "--torso=impala_deep"], "--torso and --stack_size"),
    ],
)
def test_flags_of_other_networks_are_refused(run, module, space, flags, message):
    (error,) = errors(run(module, space, *flags, code=2).stderr)
    assert message in error and "Box(" in error


def test_impossible_sizes_are_refused():
    with pytest.raises(UserError, match="mlp_sizes must be at least 1, not 0"):
        MLPNetworkConfig(mlp_sizes=(64, 0))
    with pytest.raises(UserError, match="lstm_sizes must be at least 0, not -1"):
        MLPNetworkConfig(lstm_sizes=(-1,))
