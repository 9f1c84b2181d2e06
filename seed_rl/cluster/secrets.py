"""The directory of a run's token and certificates."""

from __future__ import annotations

import dataclasses
import pathlib

from seed_rl.common.errors import UserError

TOKEN, CERTIFICATE, KEY, AUTHORITY = FILES = ("token", "cert.pem", "key.pem", "ca.pem")
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
        if (CERTIFICATE in names) != (KEY in names):
            missing = KEY if CERTIFICATE in names else CERTIFICATE
            raise UserError(
                f"{self.directory} has no {missing}: a certificate and its key go together. {_HOW}"
            )
        known = {TOKEN: "auth_token_file", CERTIFICATE: "tls_certificate", KEY: "tls_key"}
        return self._flags(known, names)

    def actor_flags(self) -> list[str]:
        """Token and certificate authority.

        Raises:
          UserError: there is no readable directory with any of the files.
        """
        return self._flags({TOKEN: "auth_token_file", AUTHORITY: "tls_ca"}, self._names())

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

    def _flags(self, flags: dict[str, str], names: set[str]) -> list[str]:
        assert self.directory is not None or not names
        return [
            f"--{flag}={self.directory}/{file}" for file, flag in flags.items() if file in names
        ]
