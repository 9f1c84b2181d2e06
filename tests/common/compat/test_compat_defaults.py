"""Defaults and flags of programs and scripts written for the original."""

import json

import pytest

from seed_rl.common.compat import original_defaults
from tests.helpers import PROGRAMS

COMMON, ON_POLICY = "common.common_flags", "agents.policy_gradient.learner_flags"


def options_of(forks, imports, *arguments, names=()):
    """Values and origins of options, and what the program said on standard error."""
    done = forks.run(PROGRAMS / "existing_defaults.py", imports, ",".join(names), *arguments)
    assert done.returncode == 0, done.stderr
    values, origins = json.loads(done.stdout.splitlines()[-1])
    return values, origins, done.stderr


@pytest.mark.parametrize(
    ("imports", "preset"),
    [
        (f"agents.vtrace.learner,{COMMON}", original_defaults.VTRACE),
        (f"{COMMON},agents.r2d2.learner,atari.env", original_defaults.R2D2),
        (f"{COMMON},agents.sac.learner", original_defaults.SAC),
        (f"{ON_POLICY},{COMMON}", original_defaults.ON_POLICY),
    ],
)
def test_existing_programs_have_the_defaults_of_the_original(forks, imports, preset):
    """Whatever the order of imports; each says where it comes from."""
    values, origins, _ = options_of(forks, imports, names=preset.values)
    assert values == preset.values
    assert set(origins.values()) == {"original program preset"}
    assert {"unroll_length", "save_checkpoint_secs"} <= set(origins)
