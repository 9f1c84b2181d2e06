"""HAProxy in front of a learner: `haproxy.cfg` with the settings of a run.

`python -m seed_rl.launch.proxy SECRETS` only checks that one could run on this machine.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys

from seed_rl.common.errors import UserError, exits

FILES = ("proxy.pem", "ca.pem")
"""Files from a run's secrets: certificate and key in one, and the authority of the actors'."""

_CONFIGURATION = pathlib.Path(__file__).with_name("haproxy.cfg")
_MAX_DIRECTORY = 84  # HAProxy's limit for paths of sockets is 97, with ".PID.tmp" appended.
_PLACES = os.pathsep.join(("/usr/sbin", "/usr/local/sbin"))  # On root's PATH only.


@dataclasses.dataclass(frozen=True)
class Proxy:
    """A proxy.

    Attributes:
      bind: where it listens, as HOST:PORT; without HOST, at all addresses of this machine.
      learner: path of the learner's Unix socket.
      secrets: directory with `FILES`, which scripts/make_secrets.sh makes.
      directory: where it creates its sockets; only this user may have write access.
    """

    bind: str
    learner: pathlib.Path
    secrets: pathlib.Path
    directory: pathlib.Path

    def command(self) -> list[str]:
        """Its command line, for a process with the variables of `environment`.

        Raises:
          UserError: HAProxy or a secret is missing, or `directory` is too long for sockets; the
            message says what to do.
        """
        if len(str(self.directory)) > _MAX_DIRECTORY:
            raise UserError(
                f"The proxy cannot create sockets in {self.directory}: the path is longer than "
                f"{_MAX_DIRECTORY} characters. Set TMPDIR to a shorter one."
            )
        return [check(self.secrets), "-db", "-f", str(_CONFIGURATION)]

    def environment(self) -> dict[str, str]:
        """The variables that its configuration reads."""
        return {
            "PROXY_BIND": self.bind,
            "PROXY_LEARNER": str(self.learner),
            "PROXY_SECRETS": str(self.secrets.absolute()),
            "PROXY_DIRECTORY": str(self.directory),
        }


def check(secrets: pathlib.Path) -> str:
    """Checks that a proxy with the secrets in this directory can start; returns HAProxy's path.

    Raises:
      UserError: HAProxy or a file is missing; the message says what to do.
    """
    path = shutil.which("haproxy") or shutil.which("haproxy", path=_PLACES)
    if path is None:
        raise UserError(
            "HAProxy, which authenticates actors on other machines, is missing: "
            "sudo apt-get install haproxy"
        )
    missing = [name for name in FILES if not os.access(secrets / name, os.R_OK)]
    if missing:
        raise UserError(
            f"Cannot read {secrets / missing[0]}, which the proxy needs. Make the files of a run "
            f"with scripts/make_secrets.sh {secrets} HOST, where HOST is this machine's name as "
            "actors see it."
        )
    return path


@exits
def main() -> int:
    """See above."""
    secrets = pathlib.Path(sys.argv[1])
    check(secrets)
    nowhere = pathlib.Path("/tmp")  # HAProxy's -c only reads: it listens at no address.
    proxy = Proxy(":1", nowhere / "learner", secrets, nowhere)
    command = [*proxy.command(), "-c"]
    variables = {**os.environ, **proxy.environment()}
    if subprocess.run(command, env=variables, stdout=subprocess.DEVNULL).returncode:
        raise UserError(f"HAProxy cannot use the files in {secrets}; it says why above.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
