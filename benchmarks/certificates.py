"""Certificates for benchmarks of encrypted connections."""

from __future__ import annotations

import subprocess
from pathlib import Path


def create(folder: Path) -> dict[str, str]:
    """Makes a certificate for `localhost`, signed by itself.

    Returns:
      Paths of `certificate`, `key` and `ca`.

    Raises:
      SystemExit: openssl is not installed.
    """
    certificate, key = str(folder / "certificate.pem"), str(folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command += ["-out", certificate, "-keyout", key]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        raise SystemExit("error: openssl is missing: apt-get install openssl") from None
    return {"certificate": certificate, "key": key, "ca": certificate}
