"""Keeps a copy of a learner's logdir in a bucket, from which the next learner resumes.

The learner works in a directory on its own disk: checkpoints need renames, locks and flushes, which
object stores do not have. In the bucket

- a checkpoint's manifest is uploaded after the files that it names, and removed before them: a
  checkpoint with a manifest is complete;
- `<name>.complete` beside the manifest says the same of a directory of extra files (a replay);
- `mirror.json` is the lease of the learner that writes. It is renewed every few seconds, even while
  a large file is copied, and ends a minute and a half later, by the clock of the storage.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import socket
import stat
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from seed_rl.cluster.remote_files import RemoteFiles
from seed_rl.common.checkpoints import manifest
from seed_rl.common.errors import UserError
from seed_rl.common.run_files import checkpoint_list
from seed_rl.common.run_files.checkpoint_list import BEST, DIRECTORY

OWNER = "mirror.json"
_BEST_CHECKPOINTS = f"{BEST}/{DIRECTORY}"
_FOLDERS = (DIRECTORY, _BEST_CHECKPOINTS)  # Of checkpoints.
_MANIFEST = "MANIFEST.json"
_COMPLETE = ".complete"
_BEAT_S = 20.0
_LEASE_S = 90.0  # An owner that misses several heartbeats, for this long, is dead.
_POLL_S = 5.0

_T = TypeVar("_T")


class DisplacedError(UserError):
    """Another learner writes to the same place."""


class Mirror:
    """The copy of one logdir.

    Args:
      remote: where the copy is.
      logdir: the directory on this machine's disk.
      sleep: waits for a number of seconds; tests replace it.
      clock: monotonic seconds; tests replace it.
    """

    def __init__(
        self,
        remote: RemoteFiles,
        logdir: Path,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._remote = remote
        self.logdir = logdir
        self._sleep = sleep
        self._clock = clock
        self._owner = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex}"
        self._beats = 0
        self._last_beat = -_BEAT_S
        self._beating = threading.Lock()
        self._copied: dict[str, tuple[int, int]] = {}  # (size, modification time) by name.
        self._complete: set[str] = set()  # Checkpoints and their extra directories.
        self._own: set[str] = set()  # Checkpoints that this learner has uploaded.
        self._skipped: set[Path] = set()  # Files that are not copied.

    @property
    def url(self) -> str:
        return self._remote.url

    @property
    def claimed(self) -> bool:
        """Whether this learner has become the writer."""
        return self._beats > 0

    def claim(self) -> None:
        """Becomes the only writer: at once if the last one's lease is released or has ended.

        Raises:
          DisplacedError: another learner is alive.
          UserError: the place cannot be read or written.
        """
        first = self._try("read", lambda: self._remote.read(OWNER))
        if first is not None and not _released(first):
            left_s = _LEASE_S - self._try("write to", lambda: self._remote.age_s(OWNER))
            if left_s > 0:
                logging.info(
                    "Another learner has written to %s; waiting %.0f s for its heartbeat.",
                    self.url,
                    left_s,
                )
            deadline = self._clock() + left_s
            while self._clock() < deadline:
                self._sleep(_POLL_S)
                now = self._try("read", lambda: self._remote.read(OWNER))
                if now is None or _released(now):
                    break
                if now != first:
                    raise DisplacedError(
                        f"Another learner is writing to {self.url}: {_host(now)}. Stop "
                        "it, or choose another --logdir."
                    )
        self._try("write to", lambda: self._beat(force=True))

    def restore(self) -> None:
        """Downloads the run.

        That is its newest intact checkpoint, the newest extra files (a replay) with the checkpoint
        that they belong to, the best checkpoint, and all files that belong to no checkpoint.

        Raises:
          UserError: it cannot be read, or all of its checkpoints are damaged.
        """
        self._try("read", self._restore)

    def copy(self) -> None:
        """Uploads what is new, checkpoints first, then removes what is gone.

        Raises:
          DisplacedError: another learner has taken over.
          Exception: any other error of the file system; the next call continues. That of a file
            that belongs to no checkpoint is raised at the end.
        """
        self._beat(force=True)
        kept = {folder: self._upload_checkpoints(folder) for folder in _FOLDERS}
        errors: list[Exception] = []
        for path in self._other_files():
            try:
                self._upload_changed(path)
            except DisplacedError:
                raise
            except Exception as error:  # Each file system has errors of its own.
                errors.append(error)
        for folder, checkpoints in kept.items():
            if checkpoints & self._own:
                self._remove_old(folder, checkpoints)
        for name in [n for n in self._copied if not os.path.lexists(self.logdir / n)]:
            self._remote.remove(name)
            del self._copied[name]
        if errors:
            raise errors[0]

    def release(self) -> None:
        """Lets the next learner take over without waiting."""
        self._remote.write(OWNER, json.dumps({"owner": None}).encode())

    def newest(self) -> str | None:
        """The name of the newest complete checkpoint in the copy, as far as this learner knows."""
        return max((n for n in self._complete if n.count("/") == 1), default=None)

    # Who writes.

    @contextlib.contextmanager
    def showing_life(self) -> Iterator[None]:
        """Renews the lease in a thread within the context, until another learner takes over.

        Without it, an upload or download that takes minutes, or long pauses between rounds, would
        look like the learner's death.
        """
        ended = threading.Event()

        def show() -> None:
            while not ended.wait(_BEAT_S):
                try:
                    self._beat()
                except DisplacedError:
                    return  # The next copy() raises the same.
                except Exception:  # Each file system has errors of its own.
                    continue  # Reported by the copy or restore.

        thread = threading.Thread(target=show, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(_BEAT_S)  # A request to a slow bucket may be under way.

    def _beat(self, force: bool = False) -> None:
        """Checks that no other learner has taken over, and writes a heartbeat."""
        with self._beating:
            if not force and self._clock() - self._last_beat < _BEAT_S:
                return
            content = self._remote.read(OWNER) if self._beats else None
            if content is not None and _owner(content).get("owner") != self._owner:
                raise DisplacedError(
                    f"Another learner is now writing to {self.url}: {_host(content)}. This one "
                    "ends without saving."
                )
            self._beats += 1
            beat = {"owner": self._owner, "host": socket.gethostname(), "beat": self._beats}
            self._remote.write(OWNER, (json.dumps(beat) + "\n").encode())
            self._last_beat = self._clock()

    def _try(self, what: str, action: Callable[[], _T]) -> _T:
        try:
            return action()
        except UserError:
            raise
        except Exception as error:  # Each file system has errors of its own.
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise UserError(
                f"Cannot {what} --logdir={self.url}: {reason}. Check that the bucket "
                "exists and that this account may create, read and delete its objects (on Google "
                "Cloud: roles/storage.objectAdmin on the bucket)."
            ) from error

    # Downloading.

    def _restore(self) -> None:
        names = self._remote.names()
        others = set(names)
        for folder in _FOLDERS:
            below = {n for n in names if f"{n}/".startswith(f"{folder}/")}
            self._restore_newest(folder, below)
            others -= below
        for name in sorted(others):
            if not name.startswith(OWNER):
                self._remote.download(name, self.logdir / name)
                self._copied[name] = _stamp(self.logdir / name)

    def _restore_newest(self, folder: str, names: set[str]) -> None:
        """Downloads the newest intact one of a folder's checkpoints, which these files are of."""
        found = {n.removeprefix(f"{folder}/").partition("/")[0] for n in names}
        matches = [(int(m[1]), m[0]) for f in found if (m := checkpoint_list.NAME.fullmatch(f))]
        damaged = []
        for _, name in sorted(matches, reverse=True):
            checkpoint = f"{folder}/{name}"
            if f"{checkpoint}/{_MANIFEST}" not in names:
                continue  # The learner ended while uploading it.
            try:
                self._download_checkpoint(checkpoint, names)
            except manifest.DamagedCheckpointError as error:
                logging.warning("Skipping a damaged checkpoint of %s: %s", self.url, error)
                shutil.rmtree(self.logdir / checkpoint, ignore_errors=True)
                damaged.append(checkpoint)
            else:
                if folder == DIRECTORY:
                    logging.info("Resuming from %s/%s.", self.url, checkpoint)
                self._restore_extras(checkpoint, names)
                break
        else:
            if damaged and folder == DIRECTORY:
                raise UserError(
                    f"Every checkpoint in {self.url}/{DIRECTORY} is damaged. Choose "
                    "another --logdir to start over."
                )

    def _download_checkpoint(self, checkpoint: str, names: set[str]) -> None:
        local = self.logdir / checkpoint
        self._remote.download(f"{checkpoint}/{_MANIFEST}", local / _MANIFEST)
        for name in sorted(_sealed(local)):
            if f"{checkpoint}/{name}" in names:  # Those have no '..' and no '//'.
                self._remote.download(f"{checkpoint}/{name}", local / name)
        manifest.verify(local)
        self._complete.add(checkpoint)

    def _restore_extras(self, newest: str, names: set[str]) -> None:
        """Downloads the newest extra files: a learner can also use those of an older checkpoint."""
        extras = sorted(n.removesuffix(_COMPLETE) for n in names if n.endswith(_COMPLETE))
        found = {e.rpartition("/")[0] for e in extras}
        sealed = {c for c in found if f"{c}/{_MANIFEST}" in names and c <= newest}
        if not sealed:
            return
        owner = max(sealed)
        try:
            if owner != newest:
                self._download_checkpoint(owner, names)
        except manifest.DamagedCheckpointError as error:
            logging.warning("Leaving out a damaged checkpoint of %s: %s", self.url, error)
            shutil.rmtree(self.logdir / owner, ignore_errors=True)
            return
        for extra in (e for e in extras if e.rpartition("/")[0] == owner):
            for name in sorted(n for n in names if n.startswith(f"{extra}/")):
                self._remote.download(name, self.logdir / name)
            self._complete.add(extra)

    # Uploading.

    def _upload_checkpoints(self, folder: str) -> set[str]:
        """Uploads the missing parts of a folder's checkpoints; returns the names of all."""
        entries = checkpoint_list.list_checkpoints(self.logdir / folder)
        for entry in reversed(entries):
            self._upload_checkpoint(entry.path)
        return {self._name(entry.path) for entry in entries}

    def _upload_checkpoint(self, path: Path) -> None:
        """Uploads the missing parts of a checkpoint.

        The learner may remove the checkpoint meanwhile; the rest is then left out.
        """
        checkpoint = self._name(path)
        try:
            sealed = _sealed(path)
            if checkpoint not in self._complete:
                # Parts of a checkpoint of that name, left by a learner that died.
                self._remove(checkpoint, self._remote.names(checkpoint))
                for name in sorted(sealed):
                    self._upload(path / name, f"{checkpoint}/{name}")
                self._upload(path / _MANIFEST, f"{checkpoint}/{_MANIFEST}")
                self._complete.add(checkpoint)
                self._own.add(checkpoint)
                logging.info("Copied %s to %s.", checkpoint, self.url)
            for folder in sorted(p for p in path.iterdir() if p.is_dir()):
                extra = f"{checkpoint}/{folder.name}"
                if extra in self._complete or any(n.startswith(f"{folder.name}/") for n in sealed):
                    continue
                self._remote.remove(extra + _COMPLETE)
                for file in sorted(p for p in folder.rglob("*") if p.is_file()):
                    self._upload(file, f"{extra}/{file.relative_to(folder).as_posix()}")
                self._remote.write(extra + _COMPLETE, b"complete\n")
                self._complete.add(extra)
        except FileNotFoundError:
            if path.exists():
                raise

    def _other_files(self) -> Iterator[Path]:
        for folder, folders, names in os.walk(self.logdir):
            # Those with a dot are temporary, or locks.
            folders[:] = [
                f
                for f in folders
                if not f.startswith(".") and self._name(Path(folder, f)) not in _FOLDERS
            ]
            yield from (Path(folder, name) for name in sorted(names) if not name.startswith("."))

    def _upload_changed(self, path: Path) -> None:
        """Uploads a file as it is now: the learner may be writing to it."""
        name = self._name(path)
        try:
            stamp = _stamp(path)
            if self._copied.get(name) == stamp or not self._is_file(path):
                return
            with tempfile.NamedTemporaryFile(prefix="seed_rl-") as snapshot:
                shutil.copyfile(path, snapshot.name)
                if name.startswith(f"{BEST}/") and not self._has_best():
                    return  # It may describe a checkpoint that comes with the next round.
                self._upload(Path(snapshot.name), name)
            self._copied[name] = stamp
        except FileNotFoundError:
            if path.exists():
                raise

    def _upload(self, path: Path, name: str) -> None:
        self._beat()
        if self._is_file(path):
            self._remote.upload(path, name)

    def _is_file(self, path: Path) -> bool:
        """Whether to copy it: a FIFO would block, and a link may point anywhere."""
        regular = stat.S_ISREG(path.lstat().st_mode)
        if not regular and path not in self._skipped:
            logging.warning("Not copying %s: it is not a regular file.", path)
            self._skipped.add(path)
        return regular

    def _has_best(self) -> bool:
        """Whether the newest checkpoint of the best agent, if there is one, has been uploaded."""
        entries = checkpoint_list.list_checkpoints(self.logdir / _BEST_CHECKPOINTS)
        return all(self._name(entry.path) in self._complete for entry in entries[-1:])

    def _remove_old(self, folder: str, kept: set[str]) -> None:
        """Removes checkpoints that the learner has removed, and what earlier learners left.

        Call it once this learner has uploaded one of those kept, so that one is always intact.
        """
        names = self._remote.names(folder)
        depth = folder.count("/") + 2
        for checkpoint in sorted({"/".join(n.split("/")[:depth]) for n in names} - kept):
            self._remove(checkpoint, {n for n in names if n.startswith(f"{checkpoint}/")})

    def _name(self, path: Path) -> str:
        return path.relative_to(self.logdir).as_posix()

    def _remove(self, checkpoint: str, names: set[str]) -> None:
        """Removes these files of a checkpoint, starting with those that mark it complete."""
        for name in sorted(names, key=lambda n: (not n.endswith((_MANIFEST, _COMPLETE)), n)):
            self._remote.remove(name)
        self._complete = {
            c for c in self._complete if c != checkpoint and not c.startswith(f"{checkpoint}/")
        }


def _sealed(checkpoint: Path) -> list[str]:
    """The files that a checkpoint's manifest names; none if it is unreadable."""
    try:
        names = list(json.loads((checkpoint / _MANIFEST).read_text("utf-8"))["files"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    return [name for name in names if isinstance(name, str)]


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _owner(content: bytes) -> dict[str, object]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):  # Half-written: not all replace atomically.
        found = None
    return found if isinstance(found, dict) else {"owner": "unreadable"}


def _released(content: bytes) -> bool:
    return _owner(content).get("owner") is None


def _host(content: bytes) -> str:
    return str(_owner(content).get("host", "on an unknown machine"))
