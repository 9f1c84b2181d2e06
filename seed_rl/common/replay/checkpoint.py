"""Saves the replay in checkpoints and loads it.

A saved replay is a directory with

    segment-<first key>.bin   records of consecutive unrolls, a few megabytes each
    priorities.npy            <float64>[unrolls]
    inserted_at.npy           <float64>[unrolls] Unix seconds
    replay.json               the fields of an unroll, keys, size and CRC-32 of every file, counts
                              of the rate limiter, state of the random generator; written last

Records never change, so a segment that the previous checkpoint already has becomes a hard link to
that file. A part of the unrolls can be loaded by reading only their segments.

Corruption of a shared file affects every checkpoint that shares it. Loading finds it; training then
continues with an empty replay.

A segment file is, little-endian: the 8 bytes "SEEDSEG1", <int64> key of the first record,
<uint64> number of records, <uint32> end offset of each record, the records.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import logging
import os
import shutil
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from seed_rl.common.replay.replay import PrioritizedReplay
from seed_rl.common.replay.storage import Segment, UnrollStorage
from seed_rl.common.system import files

_FORMAT = 1
_MANIFEST = "replay.json"
_MAGIC = b"SEEDSEG1"
_HEADER = struct.Struct("<8sqQ")
_ARRAYS = ("priorities", "inserted_at")
# Disk space to leave for logs and the rest of the checkpoint.
_SPARE_BYTES = 64 << 20

Facts = dict[str, int]
"""Size in bytes and CRC-32 of a file."""


class SavedSegments:
    """Remembers the segments this process has saved, so that a save need not read them again."""

    def __init__(self) -> None:
        self._facts: dict[tuple[int, int], Facts] = {}
        self._intact: dict[tuple[int, int], tuple[int, int]] = {}

    def facts(self, segment: Segment, content: list[memoryview]) -> Facts:
        """The facts of a segment's file. A segment only ever grows, so its length identifies it."""
        key = segment.first_key, len(segment.ends)
        if key not in self._facts:
            self._facts[key] = _facts(content)
        return self._facts[key]

    def forget(self, oldest_key: int) -> None:
        """Forgets the segments whose records are all older than `oldest_key`."""
        self._facts = {key: f for key, f in self._facts.items() if sum(key) > oldest_key}

    def note(self, path: Path) -> None:
        """Remembers that this process has just written or checked the file."""
        stat = path.stat()
        self._intact[_identity(stat)] = stat.st_size, stat.st_mtime_ns

    def knows(self, path: Path) -> bool:
        """Whether the file has been noted and, judging by size and time, has not changed since."""
        stat = path.stat()
        return self._intact.get(_identity(stat)) == (stat.st_size, stat.st_mtime_ns)

    def keep(self, paths: Iterable[Path]) -> None:
        """Forgets all files but `paths`."""
        kept = {_identity(path.stat()) for path in paths}
        self._intact = {key: value for key, value in self._intact.items() if key in kept}


class ReplayCheckpointError(ValueError):
    """A saved replay is damaged, has another format, or holds other unrolls."""


def save_replay(
    replay: PrioritizedReplay,
    directory: str | os.PathLike[str],
    previous: Path | None = None,
    saved: SavedSegments | None = None,
) -> None:
    """Writes the replay into an empty directory, while inserting and sampling continue.

    The caller flushes the directory to disk and renames it atomically.

    Args:
      replay: saved as of the call.
      directory: must exist.
      previous: an earlier saved replay to share segments with.
      saved: passed again to the next save of this replay, which then reads and writes only what is
        new.

    Raises:
      OSError: it cannot be written; raised before writing if the disk is too full.
    """
    directory = Path(directory)
    state = replay.state()
    snapshot = replay.storage.snapshot()
    saved = saved or SavedSegments()
    saved.forget(snapshot.oldest_key)
    parts, inventory = {}, {}
    for segment in snapshot.segments():
        parts[_segment_name(segment)] = content = _encode(segment)
        inventory[_segment_name(segment)] = saved.facts(segment, content)
    for name in _ARRAYS:
        stream = io.BytesIO()
        np.save(stream, getattr(snapshot, name), allow_pickle=False)
        parts[f"{name}.npy"] = [stream.getbuffer()]
        inventory[f"{name}.npy"] = _facts(parts[f"{name}.npy"])
    shared = _same_files(previous, inventory)
    _check_room(directory, sum(f["bytes"] for n, f in inventory.items() if n not in shared))
    for name, content in parts.items():
        source = shared.get(name)
        if source is None or not _link(source, directory / name, inventory[name], saved):
            _write(directory / name, content)
            saved.note(directory / name)
    saved.keep(directory / name for name in parts)
    manifest = {
        "format": _FORMAT,
        "fields": replay.layout.describe(),
        "oldest_key": snapshot.oldest_key,
        "next_key": snapshot.next_key,
        "segments": [
            {"file": _segment_name(s), "first_key": s.first_key, "count": len(s.ends)}
            for s in snapshot.segments()
        ],
        "state": state,
        "files": inventory,
    }
    files.write_atomically(directory / _MANIFEST, json.dumps(manifest, indent=1) + "\n")


def load_replay(replay: PrioritizedReplay, directory: str | os.PathLike[str]) -> None:
    """Replaces the content and state of a replay that is not in use yet.

    If the capacity or the memory limit is smaller than at the time of saving, loads the newest
    unrolls.

    Raises:
      ReplayCheckpointError: the saved replay is unusable; `replay` is unchanged.
    """
    directory = Path(directory)
    try:
        manifest = json.loads((directory / _MANIFEST).read_text("utf-8"))
        if manifest["format"] != _FORMAT:
            raise ReplayCheckpointError(
                f"{directory} has format {manifest['format']}, but this version reads {_FORMAT}"
            )
        _check_fields(manifest["fields"], replay.layout.describe(), directory)
        storage = replay.new_storage()
        if manifest["next_key"] > manifest["oldest_key"]:
            _fill(storage, manifest, directory)
        replay.restore(storage, manifest["state"])
    except ReplayCheckpointError:
        raise
    except Exception as error:  # The files may hold anything.
        raise ReplayCheckpointError(
            f"{directory} is damaged: {type(error).__name__}: {error}"
        ) from error


class ReplayFiles:
    """The replay as a part of checkpoints: `seed_rl.common.checkpoints.checkpoints.ExtraFiles`.

    If a saved replay is unusable, logs a warning and loads the newest one of the other checkpoints:
    old experience is better than none. Without any, the run continues with an empty replay.

    Args:
      replay: the replay of the run.
      wanted: called at each save; if it returns False, the replay is not written.
    """

    def __init__(self, replay: PrioritizedReplay, wanted: Callable[[], bool] = lambda: True):
        self._replay = replay
        self._wanted = wanted
        self._saved = SavedSegments()

    def save(self, directory: Path) -> None:
        """Writes the replay into the empty `directory`; may raise OSError."""
        if self._wanted():
            newest = next(_siblings(Path(directory)), None)
            save_replay(self._replay, directory, newest, self._saved)

    def restore(self, directory: Path) -> None:
        """Loads the replay saved in `directory`, or else the newest usable one."""
        for candidate in (directory, *_siblings(directory)):
            if not (candidate / _MANIFEST).exists():
                logging.warning("There is no replay in %s.", candidate)
                continue
            try:
                load_replay(self._replay, candidate)
            except ReplayCheckpointError as error:
                logging.warning("Cannot load a saved replay: %s.", error)
            else:
                logging.info("Loaded %d unrolls from %s.", len(self._replay), candidate)
                return
        logging.warning("Starting with an empty replay.")


def _fill(storage: UnrollStorage, manifest: dict[str, Any], directory: Path) -> None:
    inventory = manifest["files"]
    priorities, inserted_at = [
        np.load(io.BytesIO(_read(directory / f"{name}.npy", inventory)), allow_pickle=False)
        for name in _ARRAYS
    ]
    if len(priorities) != manifest["next_key"] - manifest["oldest_key"]:
        raise ReplayCheckpointError(f"{directory} has a different number of priorities and unrolls")
    wanted = max(manifest["next_key"] - storage.capacity, _first_key_in_memory(storage, manifest))
    next_key = None
    for entry in manifest["segments"]:
        next_key = entry["first_key"] + entry["count"]
        if next_key > wanted:
            storage.restore_segment(_decode(_read(directory / entry["file"], inventory)))
    if next_key != manifest["next_key"]:
        raise ReplayCheckpointError(f"{directory} is missing the newest unrolls")
    newest = slice(max(0, wanted - manifest["oldest_key"]), None)
    storage.restore_entries(priorities[newest], inserted_at[newest])


def _first_key_in_memory(storage: UnrollStorage, manifest: dict[str, Any]) -> int:
    """The first key from which the newest segments fit the memory limit."""
    room = storage.max_bytes - storage.stats().total_bytes
    first_key = manifest["oldest_key"]
    for entry in reversed(manifest["segments"] if storage.max_bytes else []):
        room -= manifest["files"][entry["file"]]["bytes"]
        if room < 0:
            return max(first_key, entry["first_key"] + entry["count"])
    return first_key


def _check_fields(saved: Any, wanted: list[dict[str, Any]], directory: Path) -> None:
    if saved == wanted:
        return
    differing = next((pair for pair in zip(saved, wanted, strict=False) if pair[0] != pair[1]), "")
    detail = f": {differing[0]} there, {differing[1]} here" if differing else ""
    raise ReplayCheckpointError(
        f"{directory} holds unrolls of another format than this run's{detail}"
    )


def _encode(segment: Segment) -> list[memoryview]:
    header = _HEADER.pack(_MAGIC, segment.first_key, len(segment.ends))
    ends = segment.ends.astype("<u4", copy=False)
    return [memoryview(header), ends.data.cast("B"), segment.data.data]


def _segment_name(segment: Segment) -> str:
    return f"segment-{segment.first_key:012d}.bin"


def _decode(content: bytes) -> Segment:
    magic, first_key, count = _HEADER.unpack_from(content)
    if magic != _MAGIC:
        raise ReplayCheckpointError("a segment has another format")
    ends = np.frombuffer(content, "<u4", count, _HEADER.size)
    data = np.frombuffer(content, np.uint8, offset=_HEADER.size + ends.nbytes)
    return Segment(first_key, ends, data)


def _facts(parts: list[memoryview]) -> Facts:
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return {"bytes": sum(part.nbytes for part in parts), "crc32": checksum}


def _write(path: Path, parts: list[memoryview]) -> None:
    with open(path, "wb") as file:
        for part in parts:
            file.write(part)


def _read(path: Path, inventory: dict[str, Facts]) -> bytes:
    content = path.read_bytes()
    if _facts([memoryview(content)]) != inventory[path.name]:
        raise ReplayCheckpointError(f"{path} is damaged: wrong size or checksum")
    return content


def _link(source: Path, target: Path, facts: Facts, saved: SavedSegments) -> bool:
    """Hard-links a file if it has not changed since it was written; reads it if that is unknown."""
    try:
        if not saved.knows(source):
            if _facts([memoryview(source.read_bytes())]) != facts:
                logging.warning("%s is damaged; writing its unrolls again from memory.", source)
                return False
            saved.note(source)
        os.link(source, target)
    except OSError:  # Unreadable, removed meanwhile, or a file system without hard links.
        return False
    return True


def _identity(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_dev, stat.st_ino


def _same_files(previous: Path | None, inventory: dict[str, Facts]) -> dict[str, Path]:
    """The files of `inventory` that `previous` already has, by name."""
    if previous is None:
        return {}
    try:
        known = json.loads((previous / _MANIFEST).read_text("utf-8"))["files"]
        return {
            name: previous / name
            for name, facts in inventory.items()
            if known.get(name) == facts and (previous / name).stat().st_size == facts["bytes"]
        }
    except Exception:
        return {}  # Damaged or removed: write everything.


def _check_room(directory: Path, needed: int) -> None:
    free = shutil.disk_usage(directory).free
    if needed + _SPARE_BYTES > free:
        raise OSError(
            errno.ENOSPC,
            f"the replay needs {needed / 1e9:.2f} GB but only {free / 1e9:.2f} GB are free; make "
            "room, or save checkpoints without it",
            str(directory),
        )


def _siblings(directory: Path) -> Iterator[Path]:
    """The saved replays of the other checkpoints, newest first."""
    found = []
    for manifest in directory.parent.parent.glob(f"*/{directory.name}/{_MANIFEST}"):
        with contextlib.suppress(OSError):  # Pruned meanwhile.
            if manifest.parent != directory:
                found.append((manifest.stat().st_mtime, manifest.parent))
    yield from (path for _, path in sorted(found, reverse=True))
