"""External environments: their options, and a run whose actors others start."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from typing import Any

import pytest

from seed_rl.cluster import run as cluster_run
from seed_rl.common.errors import UserError
from seed_rl.common.run_files import checkpoint_list, progress
from seed_rl.external.env import ExternalConfig, create_environment
from seed_rl.launch import arguments
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
def started(*command: str, cwd: Any, **options: Any) -> Any:
    with subprocess.Popen([sys.executable, "-m", *command], cwd=cwd, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def test_what_cannot_start_external_actors_says_so() -> None:
    """Guards against messages about options that the user has not set."""
    line = ["external", "ppo", "2", *SPACES, "--total_environment_frames=1000"]
    with pytest.raises(UserError, match="external cannot be combined with --seeds"):
        arguments.parse([*line, "--seeds=3"])
    with pytest.raises(UserError, match="external cannot be combined with --learners=2"):
        arguments.parse([*line, "--learners=2"])
    with pytest.raises(UserError, match=r"A cluster cannot start external actors. .* --expose"):
        cluster_run.parse(line)


ACTOR = ["seed_rl.gym.ppo_main", "--run_mode=actor", "--env_name=CartPole-v1", "--task=-1"]
ACTOR += ["--env_batch_size=2"]


@pytest.mark.slow
def test_a_run_whose_actors_come_when_they_like(
    repository: Any, tmp_path: Any, short_path: Any
) -> None:
    """Guards the whole: no actors of its own, ids handed out, the end told to all.

    Then the agent is served, and meanwhile a newer checkpoint of it appears. The actors are
    Python's, of another family: only spaces must agree.
    """
    socket = f"--server_address=unix:{short_path}/socket"
    run = ["seed_rl.command", "train", "ppo", "external", "--actors=3", "--envs=2", *SPACES]
    run += [f"--logdir={tmp_path}/run", socket, "--total_environment_frames=6000", "--jit=false"]
    with contextlib.ExitStack() as stack:
        learner = stack.enter_context(
            started(*run, "--tensorboard=false", "--unroll_length=16", cwd=repository)
        )
        actors = [stack.enter_context(started(*ACTOR, socket, cwd=repository)) for _ in range(3)]
        assert learner.wait(PATIENCE_S * 4) == 0
        assert [process.wait(PATIENCE_S) for process in actors] == [0, 0, 0]
    ended = progress.read(tmp_path / "run")
    assert ended is not None
    assert (ended.phase, ended.silent_envs) == ("done", ())
    checkpoint = checkpoint_list.list_checkpoints(tmp_path / "run" / "checkpoints")[-1].path
    serve = ["seed_rl.serve", f"{tmp_path}/run", socket, "--num_envs=4", "--episodes=6"]
    serve += ["--refresh_s=0.2", f"--json={tmp_path}/episodes.json"]
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(
            started(*serve, cwd=repository, stderr=subprocess.PIPE, text=True)
        )
        assert any("Serving inference" in line for line in server.stderr)
        newer = checkpoint.with_name(checkpoint.name.replace("ckpt-", "ckpt-9", 1))
        shutil.copytree(checkpoint, newer)
        assert any(f"now serving {newer.name}" in line for line in server.stderr)
        actors = [stack.enter_context(started(*ACTOR, socket, cwd=repository)) for _ in range(2)]
        server.communicate(timeout=PATIENCE_S)
        assert [process.wait(PATIENCE_S) for process in (server, *actors)] == [0, 0, 0]
    measured = json.loads((tmp_path / "episodes.json").read_text())
    assert len(measured["episodes"]) == 6
    assert all(e["reward"] == e["steps"] > 0 for e in measured["episodes"])
