"""`seed-rl conformance`: what it lets pass, and what it does not."""

from __future__ import annotations

import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from seed_rl import conformance
from seed_rl.conformance import Environment, Row, Violation
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
    environment = Environment(2)
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


@pytest.mark.nightly
def test_the_actor_passes(repository):
    command = [sys.executable, "-m", "seed_rl.conformance", "--", sys.executable, *ACTOR]
    done = subprocess.run(
        command, cwd=repository, capture_output=True, text=True, timeout=10 * PATIENCE_S
    )
    passed = done.stdout.count("passed")
    assert done.returncode == 0, done.stdout + done.stderr
    assert passed == len(conformance.RUN) + len(conformance.ENDS)


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
