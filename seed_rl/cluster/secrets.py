"""The directory of a run's token and certificates."""

from __future__ import annotations

import pathlib

from seed_rl.common.errors import UserError

TOKEN, CERTIFICATE, KEY, AUTHORITY = "token", "cert.pem", "key.pem", "ca.pem"
ACTOR_CERTIFICATE, ACTOR_KEY = "actor-cert.pem", "actor-key.pem"
FILES = (TOKEN, CERTIFICATE, KEY, AUTHORITY, ACTOR_CERTIFICATE, ACTOR_KEY)
_HOW = "scripts/make_secrets.sh DIR HOST makes all of its files."

_FLAGS = {  # In each, the last two are a certificate and its key.
    "learner": {TOKEN: "auth_token_file", CERTIFICATE: "tls_certificate", KEY: "tls_key"},
    "actor": {
        TOKEN: "auth_token_file",
        AUTHORITY: "tls_ca",
        ACTOR_CERTIFICATE: "tls_cert",
        ACTOR_KEY: "tls_key",
    },
}


def flags(directory: pathlib.Path | None, run_mode: str) -> list[str]:
    """The files that exist for a learner or an actor, as flags.

    Args:
      directory: has any of `FILES`; None: no secrets.
      run_mode: "learner" or "actor".

    Raises:
      UserError: there is no readable directory with any of the files, or certificate or key come
        alone.
    """
    if directory is None:
        return []
    try:
        names = {path.name for path in directory.iterdir()} & set(FILES)
    except OSError as error:
        raise UserError(
            f"Cannot read SEED_RL_SECRETS={directory}: {error.strerror}. {_HOW}"
        ) from error
    if not names:
        raise UserError(f"SEED_RL_SECRETS={directory} has none of {', '.join(FILES)}. {_HOW}")
    known = _FLAGS[run_mode]
    missing = [file for file in list(known)[-2:] if file not in names]
    if len(missing) == 1:
        raise UserError(
            f"{directory} has no {missing[0]}: a certificate and its key go together. {_HOW}"
        )
    return [f"--{flag}={directory}/{file}" for file, flag in known.items() if file in names]
