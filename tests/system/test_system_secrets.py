"""Runs with a token, and with encryption."""

from __future__ import annotations

import pathlib
import signal

import pytest

from seed_rl.grpc import ops
from seed_rl.grpc.numpy_client import Client as NumpyClient
from seed_rl.grpc.options import ClientOptions
from tests.helpers.local_runs import processes_of, start, trains_on
from tests.helpers.secrets import make_secrets
from tests.helpers.system_helpers import site

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


def test_made_secrets_protect_a_learner(tmp_path, free_port):
    """Guards scripts/make_secrets.sh: a real learner, an actor, and both clients by TLS."""
    secrets = make_secrets(tmp_path / "secrets", "localhost", "127.0.0.1")
    with site(tmp_path, f"localhost:{free_port}") as place:
        learner = place.learner(*secrets.of_learner)
        place.actor(0, *secrets.of_actor)
        place.trains_on(learner)
        options = ClientOptions(token=secrets.token, tls_ca=secrets.authority)
        for host in ("localhost", "127.0.0.1"):
            with NumpyClient(f"{host}:{free_port}", options) as client:
                assert client.stats()["functions"]["inference"]["calls"] > 0
            client = ops.Client(f"{host}:{free_port}", options)
            assert "inference" in client.functions
            client.close()
