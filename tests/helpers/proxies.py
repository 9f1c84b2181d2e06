"""HAProxy in front of a server, with the configuration that ships."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator

from benchmarks.secured import Secrets, start_proxy


@contextlib.contextmanager
def proxied(socket_path: str, secrets: Secrets) -> Iterator[int]:
    """A proxy for the server at a Unix socket; gives its port on 127.0.0.1."""
    process, port = start_proxy(pathlib.Path(socket_path.removeprefix("unix:")), secrets)
    with process:
        try:
            yield port
        finally:
            process.kill()
