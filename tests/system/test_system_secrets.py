"""Runs with a token, and with encryption."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

from seed_rl.common.errors import ExitCode
from seed_rl.grpc import ops
from seed_rl.grpc.channel_options import ClientOptions
from seed_rl.grpc.numpy_client import Client as NumpyClient
from tests.helpers.local_runs import processes_of, start, trains_on
from tests.helpers.secrets import make_secrets, run_script
from tests.helpers.system_helpers import site
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.slow

TOKEN = "a-token-that-nobody-may-see"


def test_no_trace_of_the_token(tmp_path):
    """Guards logs, records, checkpoints, TensorBoard files, the panel, arguments, environments."""
    secret = tmp_path / "token"
    secret.write_text(f"{TOKEN}\n")
    secret.chmod(0o600)
    with site(tmp_path, "") as place:
        run = start(place, f"--auth_token_file={secret}")
        trains_on(place, run)
        programs = [run.pid, *processes_of(place, "learner").values()]
        programs += processes_of(place, "actor").values()
        assert len(programs) == 4
        for program in programs:
            for name in ("cmdline", "environ"):
                assert TOKEN.encode() not in pathlib.Path(f"/proc/{program}/{name}").read_bytes()
        run.send(signal.SIGTERM)
        assert run.wait() == 0, run.text()
        assert TOKEN not in run.text()
        files = [path for path in place.logdir.rglob("*") if path.is_file()]
        assert {"config.json", "learner.log", "actor-0.log"} <= {path.name for path in files}
        assert [path for path in files if TOKEN.encode() in path.read_bytes()] == []


def check_clients(port, secrets):
    """Both clients reach the learner, at the name and at the address in its certificate."""
    options = ClientOptions(token=secrets.token, tls_ca=secrets.authority)
    for host in ("localhost", "127.0.0.1"):
        with NumpyClient(f"{host}:{port}", options) as client:
            assert client.stats()["functions"]["inference"]["calls"] > 0
        client = ops.Client(f"{host}:{port}", options)
        assert "inference" in client.functions
        client.close()


@pytest.mark.nightly
def test_new_secrets_cost_one_restart_of_the_learner(tmp_path, free_port):
    """Guards rotation: actors read their files again, and one that has not got its yet says so.

    And scripts/make_secrets.sh, with a real learner, actors, and both clients.
    """
    hosts = ("localhost", "127.0.0.1")
    secrets = make_secrets(tmp_path / "secrets", *hosts)
    token = tmp_path / "copied_token"
    shutil.copy(secrets.folder / "token", token)
    with site(tmp_path, f"localhost:{free_port}", "--num_envs=2") as place:
        learner = place.learner(*secrets.of_learner)
        first = place.actor(0, *secrets.of_actor)
        second = place.actor(1, f"--auth_token_file={token}", f"--tls_ca={secrets.authority}")
        place.trains_on(learner)
        check_clients(free_port, secrets)
        (secrets.folder / "token").write_text("the-next-token\n")
        assert run_script("--renew", secrets.folder, *hosts).returncode == 0
        place.trains_on(learner)  # The running learner keeps the old ones.
        learner.send(signal.SIGTERM)
        assert learner.wait() == 0, learner.text()

        learner = place.learner(*secrets.of_learner)
        place.trains_on(learner)
        check_clients(free_port, secrets)
        wait_until(
            lambda: f"its token is not the one in --auth_token_file={token}" in second.text()
        )
        shutil.copy(secrets.folder / "token", token)
        joined = re.compile("Actor 1: environments 1, learner at")
        wait_until(lambda: len(joined.findall(second.text())) == 2, running=second)
        place.trains_on(learner)
        assert first.code is None and second.code is None


def test_a_run_that_is_exposed(tmp_path, free_port):
    """An actor with a certificate takes part from elsewhere, also when the proxy is killed."""
    secrets = make_secrets(tmp_path / "secrets", "localhost")
    address = f"localhost:{free_port}"
    with site(tmp_path, address, "--num_envs=6", "--env_batch_size=2") as place:
        exposed = (f"--expose=127.0.0.1:{free_port}", f"--secrets={secrets.folder}")
        run = start(place, *exposed, "--remote_actors=1")
        flags = [f"--{name}={path}" for name, path in secrets.actor.items()]
        member = place.actor(2, *flags)
        trains_on(place, run)
        joined = re.compile("Actor 2: environments 4 to 5, learner at")
        wait_until(lambda: joined.search(member.text()), running=member)

        def stranger_is_told():  # The proxy of a busy machine may answer later.
            stranger = place.actor(2, flags[0], "--connect_timeout_s=1")
            assert stranger.wait() == int(ExitCode.NO_LEARNER), stranger.text()
            return "give this client tls_cert and tls_key" in stranger.errors()[0]

        wait_until(stranger_is_told)

        (proxy,) = proxies_of(run)
        os.kill(proxy, signal.SIGKILL)
        wait_until(lambda: len(joined.findall(member.text())) == 2, running=member)
        trains_on(place, run)
        assert "the proxy was killed by SIGKILL; restarting it" in run.text()
        run.send(signal.SIGTERM)
        assert run.wait() == 0, run.text()
        assert not proxies_of(run)


def proxies_of(run):
    """Process ids of the supervisor's proxy."""
    found = subprocess.run(["pgrep", "-P", str(run.pid), "-x", "haproxy"], capture_output=True)
    return [int(pid) for pid in found.stdout.split()]
