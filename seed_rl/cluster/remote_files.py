"""Files of a bucket or any other storage with a URL, through fsspec."""

from __future__ import annotations

import logging
import os
import uuid
from pathlib import Path, PurePosixPath
from typing import Any

from seed_rl.common.errors import UserError
from seed_rl.common.system.extras import missing_extra

_LONGEST_NAME = 255  # Bytes, on all usual file systems.
_CONNECT_S, _SILENT_S = 30.0, 60.0  # An upload that is being sent is not silent.


class RemoteFiles:
    """Objects below one URL, by their names relative to it.

    Methods raise what the file system's package raises; that differs among packages.

    Args:
      url: such as gs://bucket/runs/pong.

    Raises:
      UserError: a package for the URL is missing, or the URL is not valid.
    """

    def __init__(self, url: str):
        self.url = url.rstrip("/")
        self._left_out: set[str] = set()
        # gcsfs would ask for the bucket's type, which takes another permission, for folders that
        # nothing here needs.
        os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        options: dict[str, Any] = {}
        try:
            import fsspec

            if self.url.startswith("gs://"):  # gcsfs waits for ever by default.
                import aiohttp

                patience = aiohttp.ClientTimeout(sock_connect=_CONNECT_S, sock_read=_SILENT_S)
                options["requests_timeout"] = patience
        except ImportError as error:
            raise missing_extra("gcp", f"--logdir={url}", error) from error
        try:
            # Listings must be fresh: another machine may have written.
            self._system: Any
            self._system, root = fsspec.core.url_to_fs(
                self.url, use_listings_cache=False, **options
            )
        except (ImportError, ValueError) as error:  # No package for it, or no such protocol.
            raise UserError(f"--logdir={url}: {error}") from error
        self._root = root.rstrip("/")

    def names(self, below: str = "") -> set[str]:
        """The names of all objects, or of those in one folder and its folders.

        Omits those that cannot be files below a directory, with a warning for each.
        """
        folder = f"{self._root}/{below}".rstrip("/")
        paths = self._system.find(folder)
        names = {path.removeprefix(f"{self._root}/") for path in paths} - set(paths)
        folders = {str(parent) for name in names for parent in PurePosixPath(name).parents}
        found = set()
        for name in names:
            if name in folders or not all(map(_is_file_name, name.split("/"))):
                self._warn_of(name)
            else:
                found.add(name)
        return found

    def _warn_of(self, name: str) -> None:
        if name not in self._left_out:
            shown = ascii(name if len(name) < 100 else f"{name[:100]}...")
            logging.warning("Skipping an object of %s that is not a file: %s", self.url, shown)
            self._left_out.add(name)

    def read(self, name: str) -> bytes | None:
        """The content of a small object; None if there is none."""
        try:
            return self._system.cat_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Replaces a small object."""
        self._make_folder(name)
        self._system.pipe_file(f"{self._root}/{name}", content)

    def age_s(self, name: str) -> float:
        """Seconds since an object was written, by the clock of the storage; 0 if that is unknown.

        The clocks of machines may differ, so another object is written, for its time, and removed.
        """
        probe = f"{name}.{uuid.uuid4().hex}"
        self.write(probe, b"\n")
        try:
            now, then = (self._system.modified(f"{self._root}/{n}") for n in (probe, name))
        except (FileNotFoundError, NotImplementedError):
            return 0.0
        finally:
            self.remove(probe)
        return max((now - then).total_seconds(), 0.0)

    def upload(self, local: Path, name: str) -> None:
        """Replaces an object with a file; in object stores it appears once it is complete."""
        self._make_folder(name)
        self._system.put_file(str(local), f"{self._root}/{name}")

    def download(self, name: str, local: Path) -> None:
        local.parent.mkdir(parents=True, exist_ok=True)
        self._system.get_file(f"{self._root}/{name}", str(local))

    def remove(self, name: str) -> None:
        """Removes an object, if it exists."""
        try:
            self._system.rm_file(f"{self._root}/{name}")
        except FileNotFoundError:
            pass

    def _make_folder(self, name: str) -> None:
        if "file" in self._system.protocol:  # Object stores have no folders.
            self._system.makedirs(f"{self._root}/{name}".rpartition("/")[0], exist_ok=True)


def _is_file_name(part: str) -> bool:
    """Whether a part of an object's name can be a file's: buckets take almost any."""
    size = len(part.encode(errors="surrogatepass"))
    return part not in ("", ".", "..") and "\0" not in part and size <= _LONGEST_NAME
