"""scripts/make_secrets.sh: certificates that openssl accepts, files that only the user can read."""

from __future__ import annotations

import pathlib
import stat
import subprocess

import pytest

from seed_rl.common.system import tokens
from tests.helpers.secrets import make_secrets, run_script

FILES = (
    *("actor-cert.pem", "actor-key.pem", "ca-key.pem", "ca.pem"),
    *("cert.pem", "key.pem", "proxy.pem", "token"),
)


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    """The files by name; a forgotten temporary folder would make it fail."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def accepted_as(folder: pathlib.Path, option: str, host: str) -> bool:
    """Whether an actor with ca.pem accepts the certificate at this host."""
    command = ["openssl", "verify", "-purpose", "sslserver", option, host]
    command += ["-CAfile", str(folder / "ca.pem"), str(folder / "cert.pem")]
    return subprocess.run(command, capture_output=True).returncode == 0


def test_files_for_the_hosts_and_for_the_user_alone(tmp_path):
    """Guards names, addresses, permissions, and that a new folder's parents are made."""
    folder = tmp_path / "new" / "secrets"
    make_secrets(folder, "learner", "*.example.org", "10.0.0.5", "fd00::5")
    assert tuple(contents(folder)) == FILES
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    tokens.check((folder / "token").read_text().strip())
    for host in ("learner", "a.example.org"):
        assert accepted_as(folder, "-verify_hostname", host)
    for host in ("10.0.0.5", "fd00::5"):
        assert accepted_as(folder, "-verify_ip", host)
    of_actor = ["openssl", "verify", "-purpose", "sslclient", "-CAfile", str(folder / "ca.pem")]
    for name, accepted in (("actor-cert.pem", True), ("cert.pem", False)):
        verified = subprocess.run([*of_actor, str(folder / name)], capture_output=True)
        assert (verified.returncode == 0) == accepted
    assert not accepted_as(folder, "-verify_hostname", "other")
    assert not accepted_as(folder, "-verify_ip", "10.0.0.6")


def test_nothing_is_replaced_unless_told(tmp_path):
    """Guards a running run's secrets; --renew gives new hosts but keeps what actors have."""
    folder = tmp_path / "secrets"
    make_secrets(folder, "learner")
    before = contents(folder)
    again = run_script(folder, "learner")
    assert again.returncode == 2 and "cert.pem" in again.stderr and "--renew" in again.stderr
    assert contents(folder) == before

    renewed = run_script("--renew", "--days=3", folder, "moved")
    assert renewed.returncode == 0, renewed.stderr
    after = contents(folder)
    changed = {name for name in FILES if before[name] != after[name]}
    assert tuple(after) == FILES and changed == set(FILES) - {"token", "ca.pem", "ca-key.pem"}
    assert accepted_as(folder, "-verify_hostname", "moved")
    assert not accepted_as(folder, "-verify_hostname", "learner")
    for seconds, valid in ((2 * 86400, True), (4 * 86400, False)):
        check = ["openssl", "x509", "-noout", "-checkend", str(seconds)]
        ends = subprocess.run([*check, "-in", str(folder / "cert.pem")], capture_output=True)
        assert (ends.returncode == 0) == valid


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["DIR"], "usage:"),
        (["DIR", "learner:8686"], "leave out ports"),
        (["DIR", "a,DNS:b"], "neither a host name nor an IP address"),
        (["DIR", "999.0.0.1"], "bad ip address"),
        (["--days=0", "DIR", "learner"], "not a number of days"),
        (["--day=3", "DIR", "learner"], "unknown option --day=3"),
        (["--renew", "DIR", "learner"], "ca.pem"),
    ],
)
def test_arguments_that_make_no_sense(tmp_path, arguments, said):
    """One message, exit code 2, and no half of the files."""
    folder = tmp_path / "secrets"
    done = run_script(*(str(folder) if word == "DIR" else word for word in arguments))
    assert done.returncode == 2 and done.stderr.startswith("error: ") and said in done.stderr
    assert not folder.exists() or contents(folder) == {}


def test_a_folder_that_others_can_enter(tmp_path):
    """Guards a token in a folder where others could put another one."""
    tmp_path.chmod(0o755)
    done = run_script(tmp_path, "learner")
    assert done.returncode == 2 and f"chmod 700 {tmp_path}" in done.stderr
    assert contents(tmp_path) == {}
