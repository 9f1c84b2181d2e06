"""Which checkpoints there are, by their names alone (no TensorFlow here)."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from pathlib import Path

from seed_rl.common.errors import UserError

DIRECTORY = "checkpoints"  # Of a run's logdir.
METADATA = "metadata.json"
NAME = re.compile(r"ckpt-(\d+)-step-(\d+)")


class UnreadableError(UserError, OSError):
    """Nobody can tell which checkpoints there are."""


@dataclasses.dataclass(frozen=True, order=True)
class Entry:
    """A checkpoint: its number in the order of saving, its environment frames, its directory."""

    serial: int
    step: int
    path: Path

    def saved(self) -> float:
        """Unix time of saving; 0 if it cannot be told."""
        try:
            return float(json.loads((self.path / METADATA).read_text("utf-8"))["saved"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0.0


def list_checkpoints(directory: str | os.PathLike[str], damaged: bool = False) -> list[Entry]:
    """The checkpoints in `directory`, oldest first.

    Args:
      directory: may be missing.
      damaged: whether to list those renamed to `*.damaged` too.

    Raises:
      UnreadableError: there is a directory, or may be one, but it cannot be read.
    """
    entries = []
    try:
        paths = list(Path(directory).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UnreadableError(
            f"Cannot read {directory}: {error.strerror}. Mend that, or choose another --logdir."
        ) from error
    for path in paths:
        name = path.name.removesuffix(".damaged") if damaged else path.name
        if match := NAME.fullmatch(name):
            entries.append(Entry(int(match[1]), int(match[2]), path))
    return sorted(entries)


def saved_frames(logdir: str | os.PathLike[str]) -> int | None:
    """Environment frames of the newest checkpoint of a run; None if it has none to be seen."""
    try:
        entries = list_checkpoints(Path(logdir) / DIRECTORY)
    except UnreadableError:  # For messages about worse: they must not be lost for this.
        return None
    return entries[-1].step if entries else None
