"""The manifest of a checkpoint: its files with their sizes and checksums."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from seed_rl.common.errors import UserError
from seed_rl.common.system import files

_MANIFEST = "MANIFEST.json"
_FORMAT = 1


class DamagedCheckpointError(Exception):
    """The files of a checkpoint differ from those that were written."""


def raise_if_unreadable(path: Path, error: BaseException) -> None:
    """Raises a `UserError` if `error`, of reading `path`, does not mean that it is damaged."""
    if reason := files.unreadable(error):
        raise UserError(
            f"Cannot read {path}: {reason}. Fix that, or move its checkpoint elsewhere to use the "
            "one before."
        ) from error


def verify(path: Path) -> None:
    """Compares the files of a checkpoint with its manifest.

    Raises:
      DamagedCheckpointError: they differ.
      UserError: one of them cannot be read at present, e.g. it is another user's.
    """
    try:
        manifest = json.loads((path / _MANIFEST).read_text("utf-8"))
        expected = {
            name: (int(info["bytes"]), str(info["sha256"]))
            for name, info in manifest["files"].items()
        }
    except Exception as error:  # Whatever JSON can hold.
        raise_if_unreadable(path / _MANIFEST, error)
        raise DamagedCheckpointError(f"{path} has no readable manifest: {error}") from None
    for name, (size, digest) in expected.items():
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise DamagedCheckpointError(f"The manifest of {path} names {name}, which is elsewhere")
        try:
            # The size first: it reveals a truncated file without reading gigabytes.
            found = (path / name).stat().st_size
            if found != size:
                raise DamagedCheckpointError(f"{path / name} has {found} bytes, not {size}")
            if _sha256(path / name) != digest:
                raise DamagedCheckpointError(f"{path / name} has a wrong checksum")
        except (OSError, ValueError) as error:  # ValueError: no file can have such a name.
            raise_if_unreadable(path / name, error)
            raise DamagedCheckpointError(f"{path / name}: {error}") from None


def seal(directory: Path) -> None:
    """Writes the manifest and flushes everything to disk."""
    inventory = {}
    for path in sorted(directory.rglob("*")):
        if path.is_dir():
            continue
        inventory[path.relative_to(directory).as_posix()] = {
            "bytes": path.stat().st_size,
            "sha256": _sha256(path),
        }
    manifest = json.dumps({"format": _FORMAT, "files": inventory}, indent=1)
    files.write_atomically(directory / _MANIFEST, manifest + "\n")
    files.flush_tree(directory)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
