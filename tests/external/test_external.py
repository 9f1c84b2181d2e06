"""External environments: their options, and a run whose actors others start."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import Any

import pytest

from seed_rl.common.errors import UserError
from seed_rl.common.run_files import progress
from seed_rl.external.env import ExternalConfig, create_environment
from tests.helpers.waiting import PATIENCE_S

SPACES = ("--observations=float32[4]", "--actions=2 choices from 0")


@pytest.mark.parametrize(
    ("observations", "actions", "message"),
    [
        ("", "2 choices from 0", '--observations is missing; .*: --observations="float32'),
        ("float32[4]", "", "--actions is missing"),
        ("float32[4", "2 choices from 0", "--observations: cannot read 'float32.4'"),
        ("int32[4]", "2 choices from 0", "--observations: int32.4.* must be float32"),
        ("{a: 3 choices from 0}", "2 choices from 0", "3 choices from 0 must be float32"),
        ("float32[4]", "float32[2]", "--actions: float32.2. from -inf to inf must be from -1"),
        ("float32[4]", "{a: float32[2] from 0 to 1}", "from 0 to 1 must be from -1 to 1"),
    ],
)
def test_spaces_that_networks_do_not_take(observations: str, actions: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        ExternalConfig(observations, actions)


def test_nobody_steps_it_here() -> None:
    """Guards the message for those who evaluate such a run, or start Python's actors."""
    env = create_environment(0, ExternalConfig("float32[4]", "2 choices from 0"))
    assert (env.observation_space.shape, env.action_space.n) == ((4,), 2)
    for call in (env.reset, lambda: env.step(0)):
        with pytest.raises(UserError, match="stepped by their clients"):
            call()


@contextlib.contextmanager
def started(*command: str, cwd: Any) -> Any:
    with subprocess.Popen([sys.executable, "-m", *command], cwd=cwd) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_a_run_whose_actors_come_when_they_like(
    repository: Any, tmp_path: Any, short_path: Any
) -> None:
    """Guards the whole: no actors of its own, ids handed out, the end told to all.

    The actors are Python's, of the family of another environment: only spaces must agree.
    """
    socket = f"--server_address=unix:{short_path}/socket"
    run = ["seed_rl.command", "train", "ppo", "external", "--actors=3", "--envs=2", *SPACES]
    run += [f"--logdir={tmp_path}/run", socket, "--total_environment_frames=6000"]
    actor = ["seed_rl.gym.ppo_main", "--run_mode=actor", "--env_name=CartPole-v1", "--task=-1"]
    actor += ["--env_batch_size=2", socket]
    with contextlib.ExitStack() as stack:
        learner = stack.enter_context(
            started(*run, "--tensorboard=false", "--unroll_length=16", cwd=repository)
        )
        actors = [stack.enter_context(started(*actor, cwd=repository)) for _ in range(3)]
        assert learner.wait(PATIENCE_S * 4) == 0
        assert [process.wait(PATIENCE_S) for process in actors] == [0, 0, 0]
    ended = progress.read(tmp_path / "run")
    assert ended is not None
    assert (ended.phase, ended.silent_envs) == ("done", ())
