"""What the football program trains with: the paper's settings, or those for a workstation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seed_rl.common.errors import UserError
from seed_rl.football.environment import FootballConfig
from tests.helpers import PROGRAMS, run_python

# Kurach et al. 2020, appendix, hyperparameters of IMPALA.
PAPER = {
    "unroll_length": 32,
    "batch_size": 128,
    "discounting": 0.993,
    "entropy_cost": 0.00087453,
    "baseline_cost": 0.5,
    "optimizer": "adam",
    "learning_rate": 0.00019896,
    "torso": "gfootball",
    "smm_size": "default",
    "reward_experiment": "scoring",
    "num_action_repeats": 1,
}


def values(repository: Path, *flags: str) -> dict[str, Any]:
    """The program's options as it reads them."""
    program = PROGRAMS / "effective_options.py"
    result = run_python(program, "seed_rl.football.vtrace_main", *flags, code=0, cwd=repository)
    read: dict[str, Any] = json.loads(result.stdout)[0]
    return read


def test_the_defaults_are_those_of_the_paper(repository: Path) -> None:
    read = values(repository)
    assert {name: read[name] for name in PAPER} == PAPER
    assert not read["max_abs_reward"] and not read["target_entropy"]


def test_the_flags_for_a_workstation_are_flags_of_the_program(repository: Path) -> None:
    """Guards their names and values; a game on the command line comes on top."""
    flags = "--flagfile=seed_rl/football/workstation.flags", "--game=academy_empty_goal_close"
    read = values(repository, *flags)
    assert read["torso"] == "impala_shallow" and read["batch_size"] == 8
    assert read["game"] == "academy_empty_goal_close"


@pytest.mark.parametrize(
    ("option", "value"), [("render_mode", "human"), ("smm_size", "huge"), ("engine", "unity")]
)
def test_unknown_choices_are_refused(option: str, value: str) -> None:
    with pytest.raises(UserError, match=f"{option} must be one of"):
        FootballConfig(**{option: value})  # type: ignore[arg-type]
