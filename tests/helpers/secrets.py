"""Tokens and certificates for the tests, from scripts/make_secrets.sh."""

from __future__ import annotations

import datetime
import pathlib
import shutil
import subprocess

from benchmarks import secured
from tests.helpers import REPOSITORY, run

SCRIPT = REPOSITORY / "scripts" / "make_secrets.sh"


class Secrets(secured.Secrets):
    """The files of a run on several machines."""

    @property
    def token(self) -> str:
        return (self.folder / "token").read_text().strip()

    @property
    def authority(self) -> str:
        return str(self.folder / "ca.pem")

    @property
    def of_learner(self) -> list[str]:
        files = {"auth_token_file": str(self.folder / "token"), **self.learner}
        return [f"--{name}={path}" for name, path in files.items()]

    @property
    def of_actor(self) -> list[str]:
        return [f"--auth_token_file={self.folder / 'token'}", f"--tls_ca={self.authority}"]


def run_script(*arguments: str | pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Runs the script to its end, whatever its exit code."""
    return run(SCRIPT, *arguments)


def make_secrets(folder: pathlib.Path, *hosts: str) -> Secrets:
    """New secrets in a new folder, for a learner with these names."""
    run(SCRIPT, folder, *hosts, code=0)
    return Secrets(folder)


def dated_certificate(secrets: Secrets, folder: pathlib.Path, first: int, last: int) -> Secrets:
    """The same secrets with a certificate that is valid between two days from now."""
    shutil.copytree(secrets.folder, folder)
    (folder / "index").touch()
    (folder / "config").write_text(
        f"[ca]\ndefault_ca = run\n[run]\ndatabase = {folder}/index\nrand_serial = yes\n"
        "default_md = sha256\npolicy = any\n[any]\ncommonName = supplied\n"
    )
    key, request, certificate = (str(folder / name) for name in ("key.pem", "request", "cert.pem"))
    alternatives = ["openssl", "x509", "-in", certificate, "-noout", "-ext", "subjectAltName"]
    names = run(*alternatives, code=0).stdout.splitlines()[1].strip().replace("IP Address:", "IP:")
    (folder / "extensions").write_text(f"subjectAltName = {names}\n")
    demand = ["openssl", "req", "-new", "-key", key, "-subj", "/CN=learner", "-out", request]
    run(*demand, code=0)
    command = ["openssl", "ca", "-batch", "-notext", "-config", str(folder / "config")]
    command += ["-in", request, "-out", certificate, "-extfile", str(folder / "extensions")]
    command += ["-cert", secrets.authority, "-keyfile", str(secrets.folder / "ca-key.pem")]
    for option, days in (("-startdate", first), ("-enddate", last)):
        time = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=days)
        command += [option, f"{time:%Y%m%d%H%M%SZ}"]
    run(*command, "-outdir", folder, code=0)
    return Secrets(folder)
