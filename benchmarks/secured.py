"""What secured connections need: the secrets of a run, and the proxy in front of a learner."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import signal
import socket
import subprocess
import time

from seed_rl.common.errors import UserError
from seed_rl.launch.ports import free_port
from seed_rl.launch.process import die_with_parent
from seed_rl.launch.proxy import Proxy

_MAKE_SECRETS = pathlib.Path(__file__).resolve().parents[1] / "scripts/make_secrets.sh"


@dataclasses.dataclass(frozen=True)
class Secrets:
    """The files of a run, as flags.

    Attributes:
      folder: where they are.
    """

    folder: pathlib.Path

    @property
    def learner(self) -> dict[str, str]:
        """`tls_certificate` and `tls_key`."""
        return self._files(tls_certificate="cert.pem", tls_key="key.pem")

    @property
    def actor(self) -> dict[str, str]:
        """`tls_ca`, and `tls_cert` and `tls_key`, for which only the proxy asks."""
        return self._files(tls_ca="ca.pem", tls_cert="actor-cert.pem", tls_key="actor-key.pem")

    def _files(self, **names: str) -> dict[str, str]:
        return {option: str(self.folder / name) for option, name in names.items()}


def make_secrets(folder: pathlib.Path) -> Secrets:
    """Makes the secrets of a run on this machine in a new folder.

    Raises:
      SystemExit: openssl is not installed.
    """
    command = [str(_MAKE_SECRETS), str(folder), "localhost", "127.0.0.1"]
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode:
        raise SystemExit(made.stderr.strip())
    return Secrets(folder)


def start_proxy(learner: pathlib.Path, secrets: Secrets) -> tuple[subprocess.Popen[bytes], int]:
    """Starts the proxy that `./run_local.sh --expose` starts, and waits until it listens.

    Args:
      learner: path of the learner's Unix socket.
      secrets: of the run.

    Returns:
      Its process and its port on 127.0.0.1.

    Raises:
      SystemExit: HAProxy is not installed, or ends at once.
    """
    port = free_port()
    proxy = Proxy(f"127.0.0.1:{port}", learner, secrets.folder, secrets.folder)
    try:
        command = proxy.command()
    except UserError as error:
        raise SystemExit(f"error: {error}") from error
    log = secrets.folder / "haproxy.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, **proxy.environment()},
            stdout=output,
            stderr=output,
            preexec_fn=die_with_parent(os.getpid(), signal.SIGKILL),
        )
    while True:
        code = process.poll()
        if code is not None:
            raise SystemExit(f"error: HAProxy exited with code {code}:\n{log.read_text()}")
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return process, port
        except OSError:
            time.sleep(0.01)
