"""The example environments: what the check finds, what agents see, and short trainings."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from examples import dict_observation, multi_agent
from seed_rl import check_env
from seed_rl.common.errors import UserError
from seed_rl.gym.env import GymConfig, create_environment
from tests.helpers.system_helpers import train_to_end

MINIGRID, VIZDOOM = "examples.minigrid_memory:make", "examples.vizdoom_basic:make"


def lighthouse() -> Any:
    return dict_observation.Lighthouse(20)


def meeting(num_envs: int) -> Any:
    return multi_agent.Meeting(num_envs // 2, 2)


def installed(name: str) -> None:
    package = {MINIGRID: "minigrid", VIZDOOM: "vizdoom"}.get(name)
    if package:
        pytest.importorskip(package, reason=f"needs pip install {package}")


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("examples.old_gym:Balance", (2,)),
        (f"{__name__}:lighthouse", None),
        (f"{__name__}:meeting", None),
        (MINIGRID, (7 * 7 * (11 + 6 + 4),)),
        (VIZDOOM, (80, 107, 3)),
    ],
)
def test_nothing_must_be_mended(name: str, shape: Any) -> None:
    """Guards examples from what the checker refuses, and what agents see of them."""
    installed(name)
    config = check_env.CheckConfig(check_steps=300, check_seconds=0.0)
    facts, findings = check_env.check(GymConfig(name), config)
    assert [finding for finding in findings if finding.must] == []
    if shape:
        assert create_environment(0, GymConfig(name)).observation_space.shape == shape


def test_the_old_example_reports_its_time_limit() -> None:
    env = create_environment(0, GymConfig("examples.old_gym:Balance", '{"time_limit": 1}'))
    env.reset(seed=1)
    _, _, terminated, truncated, _ = env.step(1)
    assert truncated and not terminated


def test_players_meet() -> None:
    """Guards the world: rewards for all players at a meeting, others untouched, then new places."""
    env = multi_agent.create_batch(np.arange(4), multi_agent.MeetingConfig())
    world = env.env
    observation = env.reset(seed=3)
    np.testing.assert_array_equal(observation.sum(axis=(1, 2)), np.ones(4))
    world._places[:] = [[0, 1], [0, 4]]
    step = env.step(np.array([2, 1, 1, 1]))  # The first player moves right, to the second.
    assert step.reward.tolist() == [1, 1, 0, 0]
    assert step.done.tolist() == [True, True, False, False]
    assert step.episode_step.tolist() == [0, 0, 1, 1]
    assert world._places[1].tolist() == [0, 4] and world._places[0, 0] != world._places[0, 1]
    for _ in range(multi_agent.TIME_LIMIT - 1):
        world._places[:] = [[0, 1], [0, 4]]
        step = env.step(np.ones(4, np.int64))
    assert env.truncated.tolist() == [False, False, True, True]
    step = env.step(np.ones(4, np.int64))
    assert step.abandoned.tolist() == [False, False, True, True]


def test_worlds_must_be_whole() -> None:
    with pytest.raises(UserError, match="multiple of it"):
        multi_agent.create_batch(np.arange(3), multi_agent.MeetingConfig())


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("module", "options"),
    [
        ("examples.dict_observation", ("--agent=vtrace",)),
        ("examples.dict_observation", ("--agent=ppo",)),
        ("examples.multi_agent", ("--agent=sac", "--replay_buffer_min_size=100")),
        ("examples.multi_agent", ("--agent=r2d2", "--replay_buffer_min_size=20")),
        ("seed_rl.gym.vtrace_main", ("--env=examples.old_gym:Balance",)),
        ("seed_rl.gym.r2d2_main", (f"--env={MINIGRID}", "--replay_buffer_min_size=20")),
        (
            "seed_rl.gym.vtrace_main",
            (f"--env={VIZDOOM}", "--torso=impala_deep", "--lstm_size=32", "--unroll_length=5"),
        ),
    ],
)
def test_examples_train(
    forks: Any, tmp_path: Any, socket_address: str, module: str, options: Any
) -> None:
    """Guards the path from an environment's spaces to a network, with each agent."""
    for option in options:
        installed(option.removeprefix("--env="))
    logdir = train_to_end(forks, tmp_path, socket_address, module, 1500, *options)
    config = json.loads((logdir / "config.json").read_text())
    if options[0].startswith("--agent="):
        assert config["agent"] == options[0].removeprefix("--agent=")
