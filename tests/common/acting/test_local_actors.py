"""Actors in processes: what is left when they are killed."""

import os
import pathlib
import subprocess
import time

from seed_rl.common.acting.actor import ActorConfig
from seed_rl.common.acting.env_group import Environments
from seed_rl.common.acting.local_actors import PROCESSES, LocalActors
from tests.helpers.run_helpers import is_alive
from tests.helpers.waiting import wait_until


def create_that_hangs(env_id, path):
    """An environment with a process of its own, as simulators have, that never answers."""
    del env_id
    simulator = subprocess.Popen(["sleep", "600"])
    pathlib.Path(path).write_text(str(simulator.pid))
    time.sleep(600)


def test_killing_an_actor_ends_the_processes_of_its_environments(tmp_path):
    """Guards against simulators that stay behind after a second Ctrl-C."""
    path = tmp_path / "pid"
    config = ActorConfig(server_address=f"unix:{tmp_path}/socket")
    actors = LocalActors(
        PROCESSES, Environments(create_that_hangs, os.fspath(path)), [config], lambda: None
    )
    actors.start()
    try:
        wait_until(lambda: path.exists() and path.read_text())
    finally:
        actors.kill()
    pid = int(path.read_text())
    wait_until(lambda: not is_alive(pid))
    assert actors.error is None
