"""Tokens and certificates for the tests, from scripts/make_secrets.sh."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "make_secrets.sh"


@dataclasses.dataclass(frozen=True)
class Secrets:
    """The files of a run on several machines."""

    folder: pathlib.Path

    @property
    def token(self) -> str:
        return (self.folder / "token").read_text().strip()

    @property
    def authority(self) -> str:
        return str(self.folder / "ca.pem")

    @property
    def of_learner(self) -> list[str]:
        return [
            f"--auth_token_file={self.folder / 'token'}",
            f"--tls_certificate={self.folder / 'cert.pem'}",
            f"--tls_key={self.folder / 'key.pem'}",
        ]

    @property
    def of_actor(self) -> list[str]:
        return [f"--auth_token_file={self.folder / 'token'}", f"--tls_ca={self.authority}"]


def run_script(*arguments: str | pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Runs the script to its end, whatever its exit code."""
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, timeout=60)


def make_secrets(folder: pathlib.Path, *hosts: str) -> Secrets:
    """New secrets in a new folder, for a learner with these names."""
    done = run_script(folder, *hosts)
    assert done.returncode == 0, done.stderr
    return Secrets(folder)
