"""Asks the learner of this container whether it serves, for the engine's health checks.

    python -m seed_rl.cluster.health

Reads the variables that make the process a learner (`python -m seed_rl.cluster --help`). Exit
code 0: it serves, or this process is not a learner, so there is no port to ask; 1: it does not.
"""

from __future__ import annotations

import os
import pathlib
import re
import sys
from collections.abc import Mapping

import grpc

from seed_rl.cluster import address_file, learners, roles, run
from seed_rl.cluster.secrets import AUTHORITY, CERTIFICATE
from seed_rl.common.errors import UserError
from seed_rl.grpc import addresses, diagnosis
from seed_rl.grpc.channel_options import ClientOptions

_METHOD = "/grpc.health.v1.Health/Check"
_SERVING = b"\x08\x01"  # HealthCheckResponse{status: SERVING}
_TIMEOUT_S = 5.0
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}


def check(address: str, authority: pathlib.Path | None = None, name: str | None = None) -> None:
    """Asks a server whether it serves; this needs no token.

    Args:
      address: "host:port" or "unix:/path".
      authority: file with the certificate (PEM) that signed the server's, or the server's itself;
        None: no encryption.
      name: host that the server's certificate must be for; None: that of `address`.

    Raises:
      UserError: it does not serve, or does not answer in time.
    """
    channel = (
        grpc.insecure_channel(address)
        if authority is None
        else grpc.secure_channel(
            address,
            grpc.ssl_channel_credentials(authority.read_bytes()),
            [("grpc.ssl_target_name_override", name)] if name else None,
        )
    )
    with channel:
        try:
            answer = channel.unary_unary(_METHOD)(b"", timeout=_TIMEOUT_S, wait_for_ready=True)
        except grpc.RpcError as error:
            # gRPC waits for a server that it can trust, so it only reports a timeout.
            options = ClientOptions(tls_ca=str(authority) if authority else None)
            reason = diagnosis.why_unreachable(address, options, name) or error.details()
            raise UserError(f"The learner does not answer at {address}: {reason}") from None
    if answer != _SERVING:
        raise UserError(f"The server at {address} reports that it is not serving.")


def check_own(environment: Mapping[str, str]) -> None:
    """Asks the learner of this environment; does nothing for other roles.

    Raises:
      UserError: it does not serve, or the environment makes no sense.
    """
    if roles.role_from(environment).kind != roles.LEARNER:
        return
    if proxied := environment.get("SEED_RL_PROXY"):
        check(f"unix:{proxied}")
        return
    address = roles.address_from(environment)
    several = bool(environment.get("SEED_RL_START") or re.search(r",|\{\}", address or ""))
    index = roles.role_from(environment, 2).index if several else 0
    if address:
        address = learners.nth(address, index)
    elif file := environment.get("SEED_RL_ADDRESS_FILE"):
        own = address_file.of_learner(pathlib.Path(file), index)
        address = own.read_text(encoding="utf-8").partition(" ")[0].strip()
    else:
        raise UserError("The learner's address is unknown: set SEED_RL_ADDRESS.")
    host, _, port = run.check_address(address).rpartition(":")
    near = address
    if addresses.is_public(address):
        wildcard = "[::]" if host.startswith("[") else "0.0.0.0"
        bind = environment.get("SEED_RL_BIND") or wildcard
        near = f"{_WILDCARDS.get(bind, bind)}:{port}"
    check(near, None if addresses.is_unix(address) else _authority(environment), host.strip("[]"))


def _authority(environment: Mapping[str, str]) -> pathlib.Path | None:
    """The file with the certificate to trust; None if the learner does not encrypt."""
    if not (directory := environment.get("SEED_RL_SECRETS")):
        return None
    secrets = pathlib.Path(directory)
    if not (secrets / CERTIFICATE).exists():
        return None
    # The learner may have only its own certificate.
    authority = secrets / AUTHORITY
    return authority if authority.exists() else secrets / CERTIFICATE


def main(environment: Mapping[str, str]) -> int:
    try:
        check_own(environment)
    except (UserError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(os.environ))
