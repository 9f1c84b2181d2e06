"""Names of options in other libraries."""

import pytest

from seed_rl.agents.policy_gradient.config import LossConfig, OnPolicyConfig
from seed_rl.agents.pqn import program as pqn
from seed_rl.agents.r2d2 import program as r2d2
from seed_rl.agents.sac import program as sac
from seed_rl.agents.vtrace import program as vtrace
from seed_rl.common.config import familiar_names
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.gym.env import GymConfig
from seed_rl.launch import arguments, local

PROGRAMS = [agent.PROGRAM for agent in (vtrace, r2d2, sac, pqn)]
CLASSES = (
    *(GymConfig, RunConfig, LearnerConfig, OptimizerConfig, DeviceConfig),
    *(OnPolicyConfig, LossConfig),
    *(config for program in PROGRAMS for config in program.configs + program.network_configs),
)
OPTIONS = {name for config in CLASSES for name in config.__dataclass_fields__}


def test_our_names_exist():
    """Guards the tables from renamed options; and a foreign name must not be one of ours."""
    ours = {*familiar_names.SAME.values(), *(flag for flag, _ in familiar_names.DIFFERENT.values())}
    assert ours <= OPTIONS
    assert not familiar_names.SAME.keys() & (OPTIONS | familiar_names.DIFFERENT.keys())


@pytest.mark.parametrize(
    ("argument", "known", "expected"),
    [
        ("--gamma=0.9", {"discounting"}, "--discounting=0.9"),
        ("-lr=1", {"learning_rate"}, "--learning_rate=1"),
        ("--gamma", {"discounting"}, "--discounting"),  # A value follows.
        ("--gamma=0.9", {"discounting", "gamma"}, "--gamma=0.9"),  # A flag of the program's own.
        ("--gamma=0.9", {"entropy_cost"}, "--gamma=0.9"),
        ("--gamma_rays=3", {"discounting"}, "--gamma_rays=3"),
        ("--gamma2=3", {"discounting"}, "--gamma2=3"),
        ("gamma", {"discounting"}, "gamma"),
    ],
)
def test_names_that_mean_the_same_are_translated(argument, known, expected):
    assert familiar_names.translated(["main", argument], known) == ["main", expected]


@pytest.mark.parametrize(
    ("in_file", "after", "frames"),
    [
        ("--frames=3000", [], 3000),
        ("--frames=3000", ["--total_environment_frames=2000"], 2000),
        ("--total_environment_frames=3000", ["--frames=2000"], 2000),
    ],
)
def test_flag_files_have_them_too_and_the_last_counts(tmp_path, in_file, after, frames):
    """Guards engines, which hand over flags in a file."""
    (tmp_path / "some.flags").write_text(f"{in_file}\n")
    line = ["gym", "vtrace", "1", "1", f"--flagfile={tmp_path}/some.flags", *after]
    line += [f"--logdir={tmp_path}/run"]
    assert local.ask_program(arguments.parse(line), quiet=True).frames == frames


def test_what_differs_is_explained_where_we_have_it():
    known = {"replay_buffer_size"}
    assert "--replay_buffer_size=..., in unrolls" in familiar_names.instead("buffer_size", known)
    assert familiar_names.instead("buffer_size", set()) is None
    assert familiar_names.instead("no_such_name", known) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("learning-rate", "--learning_rate=..."),
        ("max-grad-norm", "--clip_norm=..."),
        ("lr", "--learning_rate=..."),  # In a flag file, which is not translated.
        ("total-timesteps", "--total_environment_frames=..., which counts"),
        ("num-envs", "ACTORS ENVS_PER_ACTOR, "),
        ("n_envs", "ACTORS ENVS_PER_ACTOR, "),  # Not --num_envs, which launchers refuse.
        ("track", "--wandb_project=..., "),
    ],
)
def test_dashes_and_habits_are_explained(name, expected):
    assert familiar_names.instead(name, OPTIONS).startswith(expected)
