"""A cache of compiled levels, shared by all actors (no TensorFlow here).

The engine compiles a map before an episode begins, which takes seconds where maps are generated. It
asks the cache first, and gives it what it has compiled. Entries never change once written, so any
number of processes and machines may read and write at the same time: each writes a file of its own
and renames it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from absl import logging

from seed_rl.common.errors import UserError
from seed_rl.common.system.extras import missing_extra

_LONGEST_NAME = 200  # File systems allow 255 bytes; the name of an unfinished file has 33 more.
_PAUSE_S = 600.0  # Without tries after a failure, which would delay every episode.

_warned: set[tuple[str, str]] = set()  # All environments of an actor share its cache.


class LevelCache:
    """The `level_cache` of `deepmind_lab.Lab`.

    A cache that fails (full, read-only, unreachable) is not fatal: levels are compiled instead. The
    first failure is logged; what failed, reading or writing, is not tried again for ten minutes.
    """

    def __init__(self, cache_dir: str | os.PathLike[str]):
        """Opens a cache; it need not exist yet.

        Args:
          cache_dir: a local directory, or a URL of any file system that fsspec knows, such as
            gs://bucket/levels.

        Raises:
          UserError: fsspec or its package for the URL is missing, or the URL is not valid.
        """
        self._cache_dir = os.fspath(cache_dir)
        try:
            import fsspec
        except ImportError as error:
            raise missing_extra("dmlab", "A level cache", error) from error
        try:
            self._system: Any = fsspec.core.url_to_fs(self._cache_dir)[0]
        except (ImportError, ValueError) as error:  # No package for it, or no such protocol.
            raise UserError(f"--level_cache_dir={self._cache_dir}: {error}") from error
        self._paused_until: dict[str, float] = {}

    def get_path(self, key: str) -> str:
        """Where the level with this key is stored: in the cache's directory, whatever the key."""
        name = quote(key, safe="", errors="surrogatepass").replace(".", "%2E")
        if len(name) > _LONGEST_NAME:  # No quoted key has a comma.
            name = f",{hashlib.sha256(name.encode()).hexdigest()}"
        return f"{self._cache_dir.rstrip('/')}/{name}"

    def fetch(self, key: str, pk3_path: str) -> bool:
        """Copies a level from the cache.

        Args:
          key: of the level, made by the engine.
          pk3_path: file to write; complete or untouched afterwards.

        Returns:
          Whether the level is at `pk3_path`. The engine ends the process if that is not true.
        """
        part = f"{pk3_path}.{uuid.uuid4().hex}"

        def read() -> bool:
            try:
                self._system.get_file(self.get_path(key), part)
            except FileNotFoundError:
                return False
            if os.path.getsize(part) == 0:
                return False
            os.replace(part, pk3_path)
            return True

        try:
            return self._tolerate("read", read)
        finally:
            with contextlib.suppress(OSError):
                os.remove(part)

    def write(self, key: str, pk3_path: str) -> None:
        """Adds a level, unless it is there already.

        Args:
          key: of the level, made by the engine.
          pk3_path: the compiled level.
        """

        def add() -> bool:
            path = self.get_path(key)
            if self._system.exists(path):
                return True
            self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
            # No other process uses this name, nor any key: those contain no dots.
            part = f"{path}.{uuid.uuid4().hex}"
            try:
                self._system.put_file(pk3_path, part)
                self._system.mv(part, path)
            except BaseException:
                with contextlib.suppress(Exception):
                    self._system.rm_file(part)
                raise
            return True

        self._tolerate("write", add)

    def _tolerate(self, what: str, action: Callable[[], bool]) -> bool:
        """The result of the action; False if it fails or has failed recently."""
        if time.monotonic() < self._paused_until.get(what, 0.0):
            return False
        try:
            return action()
        except Exception as error:  # From any file system; the engine cannot handle exceptions.
            self._paused_until[what] = time.monotonic() + _PAUSE_S
            if (self._cache_dir, what) not in _warned:
                _warned.add((self._cache_dir, what))
                logging.warning(
                    "Cannot %s the level cache %s (%s: %s). Training continues; levels are "
                    "compiled instead, which takes seconds each.",
                    "read from" if what == "read" else "write to",
                    self._cache_dir,
                    type(error).__name__,
                    error,
                )
            return False
