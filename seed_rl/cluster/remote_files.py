"""Files of a bucket or any other storage with a URL, through fsspec."""

from __future__ import annotations

import logging
import os
from pathlib import Path, PurePosixPath
from typing import Any

from seed_rl.common.errors import UserError
from seed_rl.common.system.extras import missing_extra


class RemoteFiles:
    """Objects below one URL, by their names relative to it.

    Methods raise whatever the file system's package raises; that differs among packages.

    Args:
      url: such as gs://bucket/runs/pong.

    Raises:
      UserError: a package for the URL is missing, or the URL is not valid.
    """

    def __init__(self, url: str):
        self.url = url.rstrip("/")
        # gcsfs would ask for the bucket's type, which takes another permission, for folders that
        # nothing here needs.
        os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        try:
            import fsspec
        except ImportError as error:
            raise missing_extra("gcp", f"--logdir={url}", error) from error
        try:
            # Listings must be fresh: another machine may have written.
            self._system: Any
            self._system, root = fsspec.core.url_to_fs(self.url, use_listings_cache=False)
        except (ImportError, ValueError) as error:  # No package for it, or no such protocol.
            raise UserError(f"--logdir={url}: {error}") from error
        self._root = root.rstrip("/")

    def names(self, below: str = "") -> set[str]:
        """The names of all objects, or of those in one folder and its folders."""
        folder = f"{self._root}/{below}".rstrip("/")
        found = set()
        for path in self._system.find(folder):
            name = path.removeprefix(f"{self._root}/")
            if name == path:
                continue  # The folder itself.
            if ".." in PurePosixPath(name).parts or name.startswith("/") or "//" in name:
                # It would be a file outside of the logdir.
                logging.warning("Leaving out %s/%s: a name with '..' or '//'.", self.url, name)
            else:
                found.add(name)
        return found

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

    def upload(self, local: Path, name: str) -> None:
        """Replaces an object by a file; in object stores it appears when it is complete."""
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
