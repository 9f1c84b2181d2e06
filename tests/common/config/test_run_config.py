"""Options of a run."""

from __future__ import annotations

import subprocess
import sys

import pytest

from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError


@pytest.mark.parametrize("address", ["foo", "localhost", ":x", "localhost:99999", "unix:", "h:-1"])
def test_addresses_without_sense(address):
    with pytest.raises(UserError, match=f"--server_address={address} is not an address: use host"):
        RunConfig(server_address=address)


@pytest.mark.parametrize("address", ["localhost:0", "[::]:8686", "unix:/x", "dns:///host:80"])
def test_addresses(address):
    assert RunConfig(server_address=address).server_address == address


def test_a_learner_for_other_machines_needs_secrets_or_consent():
    """One message that names the flags; any of the three lets it start."""
    with pytest.raises(UserError, match=r"=0\.0\.0\.0:1, .*make_secrets.sh .*--insecure"):
        RunConfig(server_address="0.0.0.0:1").check_exposure()
    RunConfig(server_address="0.0.0.0:1", insecure=True).check_exposure()
    RunConfig(server_address="0.0.0.0:1", auth_token_file="token").check_exposure()
    RunConfig(server_address="0.0.0.0:1", tls_certificate="c", tls_key="k").check_exposure()
    RunConfig(server_address="localhost:1").check_exposure()


@pytest.mark.parametrize(("mode", "code"), [("learner", 2), ("actor", 0)])
def test_the_refusal_comes_before_anything_starts(mode, code, tmp_path):
    """Guards ./run_local.sh, which asks first; an actor may connect where others serve."""
    command = [sys.executable, "-m", "seed_rl.gym.vtrace_main", f"--run_mode={mode}"]
    command += ["--only_check_args", f"--logdir={tmp_path}/run", "--server_address=0.0.0.0:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    assert ("error: Refusing to serve --server_address=0.0.0.0:1" in done.stderr) == (code == 2)
