"""What a replica reaches on Google Cloud, on this machine."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import threading
from collections.abc import Iterator

import pytest

CUT_OFF = 200
"""A failure: the answer ends early."""


@contextlib.contextmanager
def storage() -> Iterator[str]:
    """An emulator of Google Cloud Storage with a bucket; yields its address."""
    pytest.importorskip("gcsfs")
    create_server = pytest.importorskip("gcp_storage_emulator.server").create_server

    server = create_server("127.0.0.1", 0, in_memory=True, default_bucket="runs")
    server.start()
    try:
        yield f"http://127.0.0.1:{server._api._httpd.server_address[1]}"
    finally:
        server.stop()


class Services:
    """A metadata server and Secret Manager; requests fail with `failures` or lead to `location`."""

    def __init__(self) -> None:
        self.secret = b"from Secret Manager\n"
        self.failures: list[int] = []
        self.location: str | None = None
        self.requests: list[str] = []
        services = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                services.requests.append(self.path)
                if services.location:
                    self.send_response(302)
                    self.send_header("Location", services.location)
                    self.end_headers()
                elif services.failures:
                    if (failure := services.failures.pop(0)) != CUT_OFF:
                        self.send_error(failure)
                    else:
                        self._answer({"access_token": "half"}, left_out=1)
                elif self.path.startswith("/computeMetadata/"):
                    if self.headers["Metadata-Flavor"] != "Google":
                        self.send_error(403)
                    else:
                        self._answer({"access_token": "machine", "expires_in": 3600})
                elif self.headers["Authorization"] != "Bearer machine":
                    self.send_error(401)
                else:
                    data = base64.b64encode(services.secret).decode()
                    self._answer({"payload": {"data": data}})

            do_POST = do_GET

            def _answer(self, content: object, left_out: int = 0) -> None:
                data = json.dumps(content).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data) + left_out))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
