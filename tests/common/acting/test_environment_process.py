"""The process that steps and films an environment for `seed_rl.play`."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from seed_rl.common.acting.environment_process import EnvironmentProcess, EnvironmentRequest
from seed_rl.common.errors import UserError
from tests.helpers import PROGRAMS
from tests.helpers.run_helpers import is_alive
from tests.helpers.waiting import wait_until

ACTION = np.zeros(1, np.int64)


def command(env: str, request: EnvironmentRequest) -> list[str]:
    program = str(PROGRAMS / "actor_program.py")
    return [sys.executable, program, env, f"--play_request={request.to_json()}"]


def test_an_actor_films(tmp_path: pathlib.Path, capfd: Any) -> None:
    """Guards pictures from TensorFlow, and other programs from half a video."""
    imageio = pytest.importorskip("imageio.v2")
    film = tmp_path / "x.gif"
    toy = command("--env_name=seed_rl.mujoco.toy_env:Toy-v0", EnvironmentRequest(str(film)))
    with EnvironmentProcess(toy) as env:
        assert env.reset(3).dtype == np.float32
        assert env.step(ACTION).episode_step == [1]
        assert [path.name for path in tmp_path.iterdir()] == ["x.partial.gif"]
    assert imageio.mimread(film)[0].shape[-1] == 3
    assert [path.name for path in tmp_path.iterdir()] == ["x.gif"]
    assert "TensorFlow imported: False" in capfd.readouterr().out


def test_how_it_fails(capfd: Any) -> None:
    """Its own message is enough; without one, the signal is named."""
    faulty = "--env_name=seed_rl.testing.envs:Faulty-v0"
    raises = '--env_kwargs={"fault": "raise", "at": 1}'
    failing = EnvironmentProcess([*command(faulty, EnvironmentRequest()), raises])
    with pytest.raises(SystemExit, match="1"), failing as env:
        env.reset()
        env.step(ACTION)
    assert "the simulator crashed" in capfd.readouterr().err
    for program, message in (("kill -SEGV $$", "SIGSEGV.*import it inside"), ("", "without creat")):
        ended = EnvironmentProcess(["sh", "-c", program])
        with pytest.raises(UserError, match=message), ended as env:
            env.reset()


@pytest.mark.parametrize("envs", [1, 2])
def test_environments_that_cannot_be_created(envs: int, capfd: Any) -> None:
    """Guards the advice for simulators of which there is one per machine."""
    program = f"""
from seed_rl.common.acting.environment_process import EnvironmentRequest, serve
serve(lambda index: 1 / 0, EnvironmentRequest(envs={envs}))
"""
    with pytest.raises(SystemExit), EnvironmentProcess([sys.executable, "-c", program]) as env:
        env.reset()
    said = capfd.readouterr().err
    assert "could not be created." in said and ("add --envs=1" in said) == (envs == 2)


def test_each_environment_is_made_by_its_index() -> None:
    """Guards the levels of several environments: the first ends its episodes sooner."""
    program = """
from seed_rl.common.acting.environment_process import EnvironmentRequest, serve
from seed_rl.testing.envs import TimeLimitEnv
serve(lambda index: TimeLimitEnv(index + 1), EnvironmentRequest(envs=2))
"""
    with EnvironmentProcess([sys.executable, "-c", program]) as env:
        env.reset()
        done = [env.step(np.zeros(2, np.int64)).done.tolist() for _ in range(3)]
    assert done == [[False, False], [True, False], [False, True]]


def test_a_hanging_environment_ends_with_the_process_that_plays(capfd: Any) -> None:
    """Guards the machine from what a driver that hangs would leave behind."""
    hangs = ["--env_name=seed_rl.testing.envs:Faulty-v0", '--env_kwargs={"fault": "hang", "at": 1}']
    program = command(hangs[0], EnvironmentRequest())
    player = f"""
import numpy
from seed_rl.common.acting.environment_process import EnvironmentProcess
env = EnvironmentProcess({[*program, hangs[1]]})
print(env._process.pid, flush=True)
env.reset()
env.step(numpy.zeros(1, numpy.int64))
"""
    with subprocess.Popen(
        [sys.executable, "-c", player], stdout=subprocess.PIPE, text=True
    ) as played:
        assert played.stdout is not None
        pid, hanging = int(played.stdout.readline()), played.stdout.readline()
        assert "hanging" in hanging and is_alive(pid)
        played.kill()
    wait_until(lambda: not is_alive(pid))
