"""The directory of a run's token and certificates."""

from __future__ import annotations

import dataclasses
import pathlib

from seed_rl.common.errors import UserError

TOKEN, CERTIFICATE, KEY, AUTHORITY = "token", "cert.pem", "key.pem", "ca.pem"
ACTOR_CERTIFICATE, ACTOR_KEY = "actor-cert.pem", "actor-key.pem"
FILES = (TOKEN, CERTIFICATE, KEY, AUTHORITY, ACTOR_CERTIFICATE, ACTOR_KEY)
_HOW = "scripts/make_secrets.sh DIR HOST makes all of its files."


@dataclasses.dataclass(frozen=True)
class Secrets:
    """Files that exist, as flags.

    Attributes:
      directory: has any of `FILES`; None: no secrets.
    """

    directory: pathlib.Path | None = None

    def learner_flags(self) -> list[str]:
        """Token, certificate and key.

        Raises:
          UserError: there is no readable directory with any of the files, or certificate or key
            come alone.
        """
        names = self._names()
        self._check_pair(CERTIFICATE, KEY, names)
        known = {TOKEN: "auth_token_file", CERTIFICATE: "tls_certificate", KEY: "tls_key"}
        return self._flags(known, names)

    def actor_flags(self) -> list[str]:
        """Token, certificate authority, and the actors' own certificate and key.

        Raises:
          UserError: there is no readable directory with any of the files, or certificate or key
            come alone.
        """
        names = self._names()
        self._check_pair(ACTOR_CERTIFICATE, ACTOR_KEY, names)
        known = {TOKEN: "auth_token_file", AUTHORITY: "tls_ca"}
        return self._flags({**known, ACTOR_CERTIFICATE: "tls_cert", ACTOR_KEY: "tls_key"}, names)

    def _names(self) -> set[str]:
        if self.directory is None:
            return set()
        try:
            names = {path.name for path in self.directory.iterdir()} & set(FILES)
        except OSError as error:
            raise UserError(
                f"Cannot read SEED_RL_SECRETS={self.directory}: {error.strerror}. {_HOW}"
            ) from error
        if not names:
            raise UserError(
                f"SEED_RL_SECRETS={self.directory} has none of {', '.join(FILES)}. {_HOW}"
            )
        return names

    def _check_pair(self, certificate: str, key: str, names: set[str]) -> None:
        if (certificate in names) != (key in names):
            missing = key if certificate in names else certificate
            raise UserError(
                f"{self.directory} has no {missing}: a certificate and its key go together. {_HOW}"
            )

    def _flags(self, flags: dict[str, str], names: set[str]) -> list[str]:
        assert self.directory is not None or not names
        return [
            f"--{flag}={self.directory}/{file}" for file, flag in flags.items() if file in names
        ]
