"""HAProxy in front of a server, with the configuration that ships."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import subprocess
from collections.abc import Iterator

from seed_rl.launch.proxy import Proxy
from tests.helpers.secrets import Secrets
from tests.helpers.waiting import wait_until


@contextlib.contextmanager
def proxied(socket_path: str, secrets: Secrets, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A proxy at 127.0.0.1:port, for the server at a Unix socket."""
    proxy = Proxy(
        f"127.0.0.1:{port}",
        pathlib.Path(socket_path.removeprefix("unix:")),
        secrets.folder,
        secrets.folder,
    )
    with subprocess.Popen(proxy.command(), env={**os.environ, **proxy.environment()}) as process:
        try:
            wait_until(lambda: is_open(port) or process.poll() is not None)
            assert process.poll() is None
            yield process
        finally:
            process.kill()


def is_open(port: int) -> bool:
    """Whether something listens there."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
