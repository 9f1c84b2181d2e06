"""Minimal Google Cloud client for replicas: secrets and small objects, over HTTP.

Uses the machine's account through its metadata server. Standard library only, because the actors'
image has nothing else.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

from seed_rl.common.errors import UserError
from seed_rl.common.system.backoff import backoff_s

_TIMEOUT_S = 30.0
_TRIES = 5
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 2.0, 16.0  # Half a minute in total.
_PASSING = (408, 429, 500, 502, 503, 504)
_ROLE = "Give the job's service account the role roles/storage.objectAdmin on the bucket."
_SECRET = re.compile(r"projects/[^/]+/secrets/[^/]+(/versions/[^/]+)?")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Makes redirects errors: they would take the token to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


class UnavailableError(UserError):
    """A service or the network does not answer; a later attempt may succeed."""


class GoogleApi:
    """Requests with this machine's account.

    Args:
      metadata: address of the metadata server; None: Google's.
      secrets: address of Secret Manager.
      storage: address of Cloud Storage; None: Google's.
      sleep: waits for a number of seconds; tests replace it.
    """

    def __init__(
        self,
        metadata: str | None = None,
        secrets: str = "https://secretmanager.googleapis.com",
        storage: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ):
        # The same variables as for Google's own clients.
        host = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
        self._metadata = metadata or f"http://{host}"
        self._secrets = secrets
        self._storage = storage or os.environ.get(
            "STORAGE_EMULATOR_HOST", "https://storage.googleapis.com"
        )
        self._sleep = sleep

    def secret(self, name: str) -> bytes:
        """The content of a secret in Secret Manager.

        Args:
          name: projects/PROJECT/secrets/SECRET, optionally with /versions/VERSION (default:
            latest).

        Raises:
          UserError: it cannot be read.
        """
        if not _SECRET.fullmatch(name):
            raise UserError(f"'{name}' is not a secret name: use projects/PROJECT/secrets/SECRET.")
        version = name if "/versions/" in name else f"{name}/versions/latest"
        try:
            answer = self._request(f"{self._secrets}/v1/{version}:access")
            return base64.b64decode(json.loads(answer)["payload"]["data"])
        except urllib.error.HTTPError as error:
            fix = {
                403: "Give the job's service account the role roles/secretmanager.secretAccessor "
                f"on {name}, and enable secretmanager.googleapis.com in its project.",
                404: f"Create it: openssl rand -hex 32 | gcloud secrets create "
                f"{name.split('/')[3]} --project={name.split('/')[1]} --data-file=-",
            }.get(error.code, f"{error.reason}.")
            raise UserError(f"Cannot read the secret {name} (HTTP {error.code}). {fix}") from error

    def read(self, url: str) -> bytes | None:
        """The content of an object, gs://BUCKET/NAME; None if it does not exist.

        Raises:
          UnavailableError: it cannot be read now.
          UserError: it cannot be read.
        """
        bucket, name = _split(url)
        try:
            return self._request(f"{self._storage}/storage/v1/b/{bucket}/o/{name}?alt=media")
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise _refused("read", url, error) from error

    def write(self, url: str, content: bytes) -> None:
        """Replaces an object, gs://BUCKET/NAME.

        Raises:
          UserError: it cannot be written.
        """
        bucket, name = _split(url)
        path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}"
        try:
            self._request(self._storage + path, content)
        except urllib.error.HTTPError as error:
            raise _refused("write", url, error) from error

    def _request(self, url: str, content: bytes | None = None) -> bytes:
        headers = {"Authorization": f"Bearer {self._token()}"}
        if content is not None:
            headers["Content-Type"] = "application/octet-stream"
        return self._open(urllib.request.Request(url, content, headers))

    def _token(self) -> str:
        path = "/computeMetadata/v1/instance/service-accounts/default/token"
        request = urllib.request.Request(
            self._metadata + path, headers={"Metadata-Flavor": "Google"}
        )
        try:
            answer: dict[str, Any] = json.loads(self._open(request))
        except urllib.error.HTTPError as error:
            raise UserError(
                f"This machine's metadata server gives no token (HTTP {error.code}). Is the job's "
                "service account deleted or disabled?"
            ) from error
        return str(answer["access_token"])

    def _open(self, request: urllib.request.Request) -> bytes:
        """The answer; retries transient errors."""
        for tries in range(1, _TRIES + 1):
            try:
                with _OPENER.open(request, timeout=_TIMEOUT_S) as answer:
                    return answer.read()
            except (OSError, http.client.HTTPException) as error:
                where = " This is meant to run on a machine of Google Cloud."
                if isinstance(error, urllib.error.HTTPError):
                    if error.code not in _PASSING:
                        raise
                    where = ""
                if tries == _TRIES:
                    raise UnavailableError(
                        f"Requests to {urllib.parse.urlsplit(request.full_url).netloc} fail: "
                        f"{error}.{where}"
                    ) from error
            self._sleep(backoff_s(tries, _FIRST_PAUSE_S, _LONGEST_PAUSE_S))
        raise AssertionError("The last try returns or raises.")


def _split(url: str) -> tuple[str, str]:
    bucket, _, name = url.removeprefix("gs://").partition("/")
    return bucket, urllib.parse.quote(name, safe="")


def _refused(what: str, url: str, error: urllib.error.HTTPError) -> UserError:
    fix = {
        401: _ROLE,
        403: _ROLE,
        404: "There is no such bucket.",
    }.get(error.code, f"{error.reason}.")
    return UserError(f"Cannot {what} {url} (HTTP {error.code}). {fix}")
