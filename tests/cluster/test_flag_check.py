"""The check of a command line before a run is sent to a cluster."""

from __future__ import annotations

import re

import pytest

from seed_rl.cluster import flag_check
from seed_rl.common.errors import UserError
from seed_rl.gym import env as gym_env

TASK = ("gym", "vtrace", "4", "--env=CartPole-v1")


def test_a_command_line_without_mistakes(capsys, monkeypatch, tmp_path):
    """No output, no files, and no access to a logdir of the cluster."""
    monkeypatch.chdir(tmp_path)
    assert flag_check.main([*TASK, "--entropy_cost=0.01", "--logdir=gs://bucket/run"]) == 0
    assert capsys.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []
    assert flag_check.main([*TASK, "--learners=4", "--insecure"]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("--entropy_cots=0.01", "Unknown command line flag 'entropy_cots'"),
        ("--seed=one", "--seed=one"),
        ("--training_devices=gpu:1,gpu:2,gpu:3", "cannot be divided among 3 training devices"),
        ("--server_address=x:1", "--server_address cannot be set here"),
        ("--learners=2", "2 learners exchange gradients at ports"),
        ("--num_eval_envs=4", "--num_eval_envs cannot be set along with SEED_RL_EVALUATORS"),
    ],
)
def test_mistakes(wrong, message, capsys, monkeypatch):
    monkeypatch.setenv("SEED_RL_EVALUATORS", "2")
    assert flag_check.main([*TASK, wrong]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and message in line


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("CartPol-v1", "there is no such environment. Did you mean CartPole-v1?"),
        ("CartPole-v7", "--env_name=MODULE:CartPole-v7"),
        ("my.maze.Maze", "write my.maze:Maze for your own class"),
    ],
)
def test_misspelt_environments(name, message):
    with pytest.raises(UserError, match=f"^--env_name={name}.*{re.escape(message)}"):
        gym_env.check_name(gym_env.GymConfig(env_name=name))


def test_environments_that_need_not_be_known_here():
    """An id without a version is the newest; others may be known on the cluster's machines."""
    for name in ("CartPole", "MiniGrid-Empty-8x8-v0", "of_it:CartPol-v1", "of.the-cluster"):
        gym_env.check_name(gym_env.GymConfig(env_name=name))


@pytest.mark.parametrize(
    ("family", "name"),
    [("gym", "CartPol-v1"), ("mujoco", "Toy-v1"), ("mujoco", "HalfCheetah-v3")],
)
def test_programs_check_the_environment(family, name, capsys):
    assert flag_check.main([family, "vtrace", "4", f"--env_name={name}"]) == 2
    assert capsys.readouterr().err.startswith(f"error: --env_name={name}")


def test_a_program_that_wants_packages_of_the_cluster(capsys, tmp_path):
    """They are not errors; other failures of a program are."""
    program = tmp_path / "mine.py"
    program.write_text("import of_the_cluster\n")
    assert flag_check.main([str(program), "4"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: flags were not checked, because")
    assert "No module named 'of_the_cluster'" in line
    program.write_text("1 / 0\n")
    with pytest.raises(UserError, match="division by zero"):
        flag_check.check([str(program), "4"])
