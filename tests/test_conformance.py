"""`seed-rl conformance`: what it lets pass, and what it does not."""

from __future__ import annotations

import contextlib
import sys

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from rich.console import Console

from seed_rl import conformance
from seed_rl.common.types import LARGEST, EnvOutput, Spaces
from seed_rl.conformance import CartPole, Environment, Row, Violation
from seed_rl.external.env import ExternalConfig
from tests.helpers import run
from tests.helpers.waiting import PATIENCE_S

ACTOR = ("-m", "seed_rl.gym.vtrace_main", "--run_mode=actor", "--env_name=CartPole-v1")


def life(run_id: int = 5, balances: bool = False) -> list[tuple[Row, int]]:
    """(row, action) of 600 steps of an actor as it should be."""
    env, over, step = gymnasium.make("CartPole-v1"), (False, False), 0
    observation, _ = env.reset(seed=1)
    row, steps = Row(run_id, 0.0, False, observation, False, 0, 0.0), []
    for _ in range(600):
        action = int(observation @ [0.1, 0.3, 3.0, 1.0] > 0) if balances else 1
        steps.append((row, action))
        if over[1]:
            observation, _ = env.reset()
            row, step, over = Row(run_id, 0.0, True, observation, True, 0, 0.0), 0, (False, False)
            continue
        observation, _, terminated, truncated, _ = env.step(action)
        over = terminated, truncated
        step += 1
        if over[0]:
            observation, _ = env.reset()
            step = 0
        row = Row(run_id, 1.0, over[0], observation, False, step, 1.0)
    return steps


def play(steps: list[tuple[Row, int]]) -> Environment:
    environment = CartPole(2)
    for row, action in steps:
        environment.report(row, action)
    return environment


def test_right_lives_pass():
    falling, balanced = play(life()), play(life(balances=True) + life(run_id=6))
    assert falling.ended > 20
    assert (balanced.abandoned, balanced.lives) == (1, [5, 6])


@pytest.mark.parametrize(
    ("at", "fault", "message"),
    [
        (0, {"reward": 1.0}, "reward of the first call of a life is 1.0, not 0.0"),
        (0, {"run_id": 0}, "run id 0 must be new and positive"),
        (3, {"observation": np.zeros(4, np.float32)}, "observation of step 3 of an episode, after"),
        (3, {"episode_step": 4}, "episode_step of step 3 of an episode"),
        (3, {"raw_reward": 0.0}, "raw_reward of step 3"),
        (3, {"done": True}, "done of step 3"),
        (500, {"done": True, "abandoned": True}, "done of step 500 of an episode"),
        (501, {"abandoned": False}, "abandoned of the call after step 500"),
        (501, {"reward": 1.0}, "reward of the call after step 500"),
    ],
)
def test_each_rule_is_checked(at, fault, message):
    steps = life(balances=True)
    steps[at] = steps[at][0]._replace(**fault), steps[at][1]
    with pytest.raises(Violation, match=message):
        play(steps)


def test_lost_steps_and_swapped_actions_are_noticed():
    steps = life()
    with pytest.raises(Violation, match="observation of step 4"):
        play([*steps[:4], *steps[5:]])
    swapped = [(row, 1 - action) for row, action in steps]
    with pytest.raises(Violation, match="observation of step 1 of an episode, after action 0"):
        play(swapped)
    with pytest.raises(Violation, match="run id 5 must be new"):
        play([*life(run_id=5), *life(run_id=6), *life(run_id=5)])


def rows(*changes: dict[str, object]) -> list[Row]:
    """Rows of one life of an environment that is not known."""
    row = Row(5, 0.0, False, {"x": np.zeros(2)}, False, 0, 0.0)
    return [row._replace(**change) for change in changes]  # type: ignore[arg-type]


STEP = {"reward": 0.5, "raw_reward": 2.0}
TRUNCATED = {"done": True, "abandoned": True}


@pytest.mark.parametrize(
    ("played", "message"),
    [
        (rows({}, {**STEP, "episode_step": 1}, {**STEP, "done": True}, {"episode_step": 1}), ""),
        (rows({}, {**STEP, "episode_step": 1}, {**TRUNCATED, "success": 1.0}), ""),
        (
            rows({}, {"episode_step": 1, "done": True}, {"episode_step": 2}),
            "",
        ),  # A life of several.
        (rows({}, {"episode_step": 1, "done": True}, TRUNCATED), ""),  # A life at the time limit.
        (rows({}, {"episode_step": 2}), "episode_step of step 1 of an episode is 2, not 1"),
        (rows({}, {"episode_step": 1, "success": 1.0}, TRUNCATED), "read from its second call"),
        (rows({}, {"episode_step": 1, "reward": np.nan}), "must be finite"),
        (rows({}, {"episode_step": 1, "observation": {"x": np.array([LARGEST, 0])}}), ""),
        (rows({}, {"episode_step": 1, "observation": {"x": np.array([2e9, 0])}}), "must be finite"),
        (
            rows({}, {**TRUNCATED, "reward": 1.0}),
            "a truncation takes two calls",
        ),
        (rows({}, {**TRUNCATED, "done": False}), "a truncation takes two calls"),
        (
            rows({}, {"done": True}, TRUNCATED),
            "last observation of a truncated episode was not reported",
        ),
        (rows({"reward": 1.0}), "reward of the first call of a life"),
        (rows({"observation": {"action_mask": np.zeros(2)}}), "the mask allows no action"),
        (rows({}, {**TRUNCATED, "success": 2.0}), "success is 2, not 1, 0 or NaN"),
    ],
)
def test_the_rules_of_any_environment(played, message):
    environment = Environment(2)
    with contextlib.ExitStack() as stack:
        if message:
            stack.enter_context(pytest.raises(Violation, match=message))
        for row in played:
            environment.report(row, None)


@pytest.mark.slow
def test_an_actor_of_another_environment(socket_address):
    """Guards observations of several parts, and actions that masks allow: others would raise."""
    config = ExternalConfig(
        "{action_mask: uint8[5], observation: float32[1]}", "[3, 2] choices from [0, 0]"
    )
    command = [sys.executable, "-m", "seed_rl.gym.ppo_main", "--run_mode=actor"]
    command += ["--env_name=seed_rl.testing.envs:MaskedEnv"]
    command += ['--env_kwargs={"place": "observation", "choices": [3, 2]}']
    spaces = Spaces(config.space("observations"), config.space("actions"))
    judged = conformance.Conformance(command, socket_address, slow_s=0.1, of=spaces)
    with judged._pair(conformance.Part()) as (learner, client):
        judged._run(learner, client)
    faults = {name: judged.checks[name].fault for name in judged.checks if name in conformance.RUN}
    assert set(faults.values()) == {""}, faults
    assert "truncation" not in faults
    assert any(e.abandoned for e in learner.environments.values())


def test_a_failed_call_fails_its_life(socket_address):
    """Guards clients with several calls in flight: the server tries their batch again, by call."""
    with conformance.Learner(socket_address, conformance.Part()) as learner:
        zero, false = np.zeros(1, np.float32), np.zeros(1, np.bool_)
        step = EnvOutput(zero, false, np.zeros((1, 4), np.float32), false, np.int32([0]))

        def call(run_id: int) -> None:
            learner._inference(np.int32([2]), np.int64([run_id]), step, zero, zero)

        call(5)
        learner.fail()
        for _ in range(2):
            with pytest.raises(tf.errors.UnknownError, match="This call fails"):
                call(5)
        call(6)


@pytest.mark.nightly
def test_the_actor_passes(repository):
    command = [sys.executable, "-m", "seed_rl.conformance", "--", sys.executable, *ACTOR]
    done = run(*command, cwd=repository, timeout=10 * PATIENCE_S)
    passed = done.stdout.count("passed")
    assert done.returncode == 0, done.stdout + done.stderr
    assert passed == len(conformance.RUN) + len(conformance.ENDS)


def test_what_a_client_prints_is_shown_as_it_is(capsys):
    """Guards the report from brackets, which are markup for Rich."""
    judged = conformance.Conformance(["true"])
    next(iter(judged.checks.values())).fault = "Its last line: [error] [/tmp/x]"
    Console(width=200).print(judged.report())
    assert "Its last line: [error] [/tmp/x]" in capsys.readouterr().out


@pytest.mark.slow
def test_a_client_that_does_not_fit_fails(repository):
    """An actor of another environment gives up; nothing later is reached."""
    command = [sys.executable, *ACTOR[:3], "--env_name=seed_rl.testing.envs:TimeLimit-v0"]
    judged = conformance.Conformance(command)
    with judged._pair(conformance.Part()) as (learner, client):
        judged._run(learner, client)
    faults = [check.fault for check in judged.checks.values()]
    assert faults[0] is not None
    assert "exits with 2 instead" in faults[0]
    assert "Start learner and actors with the same environment options" in faults[0]
    assert set(faults[1:]) == {None}
