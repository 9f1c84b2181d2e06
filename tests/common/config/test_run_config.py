"""Options of a run."""

from __future__ import annotations

import pytest

from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError
from tests.helpers import run_python


@pytest.mark.parametrize("address", ["foo", "localhost", ":x", "localhost:99999", "unix:", "h:-1"])
def test_addresses_without_sense(address):
    with pytest.raises(UserError, match=f"--server_address={address} is not an address: use host"):
        RunConfig(server_address=address)


@pytest.mark.parametrize("address", ["localhost:0", "[::]:8686", "unix:/x", "dns:///host:80"])
def test_addresses(address):
    assert RunConfig(server_address=address).server_address == address


def test_a_learner_for_other_machines_needs_a_proxy_or_consent():
    """One message that names both, also with secrets; then, what is at risk."""
    secrets = {"auth_token_file": "token", "tls_certificate": "c", "tls_key": "k"}
    for given in ({}, secrets):
        with pytest.raises(UserError, match=r"=0\.0\.0\.0:1, .*--expose .*--insecure"):
            RunConfig(server_address="0.0.0.0:1", **given).check_exposure()
        exposed = RunConfig(server_address="0.0.0.0:1", insecure=True, **given)
        exposed.check_exposure()
        assert "use up its memory" in exposed.risk()
        assert (
            ("take part" in exposed.risk()) == ("read and change" in exposed.risk()) == (not given)
        )
    local = RunConfig(server_address="localhost:1")
    local.check_exposure()
    assert local.risk() == ""


@pytest.mark.parametrize(("mode", "code"), [("learner", 2), ("actor", 0)])
def test_the_refusal_comes_before_anything_starts(mode, code, tmp_path):
    """Guards ./run_local.sh, which checks first; an actor may connect to other machines."""
    command = ["-m", "seed_rl.gym.vtrace_main", f"--run_mode={mode}"]
    command += ["--only_check_args", f"--logdir={tmp_path}/run", "--server_address=0.0.0.0:1"]
    done = run_python(*command, code=code)
    assert ("error: Refusing to serve --server_address=0.0.0.0:1" in done.stderr) == (code == 2)
