"""Lists checkpoints by their directory names, and says what that means for a run."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from pathlib import Path

from seed_rl.common.errors import UserError
from seed_rl.common.system import files

DIRECTORY = "checkpoints"  # Of a run's logdir.
BEST = "best"
"""The best agent's, with a `DIRECTORY` of its own, in a run's logdir."""
METADATA = "metadata.json"
MODEL = "saved_model"
"""The exported policy, in a run's logdir."""
MODEL_FRAMES = "frames.txt"
"""In the model: environment frames of the newest checkpoint when it was exported."""
NAME = re.compile(r"ckpt-(\d+)-step-(\d+)")
START_OVER = (
    "To start over, train anew with another --logdir; or, on one machine, with --restart=fresh, "
    "which moves the old run aside."
)


def name(serial: int, step: int) -> str:
    """The directory name of the checkpoint `serial`, after `step` environment frames."""
    return f"ckpt-{serial:06d}-step-{step:012d}"


class UnreadableError(UserError, OSError):
    """The directory of checkpoints cannot be read."""


@dataclasses.dataclass(frozen=True, order=True)
class Entry:
    """A checkpoint.

    Attributes:
      serial: its number in the order of saving.
      step: its environment frames.
      path: its directory.
    """

    serial: int
    step: int
    path: Path


def list_checkpoints(directory: str | os.PathLike[str], damaged: bool = False) -> list[Entry]:
    """The checkpoints in `directory`, oldest first.

    Args:
      directory: may be missing.
      damaged: whether to include those renamed to `*.damaged`.

    Raises:
      UnreadableError: the directory exists, or may exist, but cannot be read.
    """
    entries = []
    try:
        paths = list(Path(directory).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UnreadableError(
            f"Cannot read {directory}: {error.strerror}. Fix that, or choose another --logdir."
        ) from error
    for path in paths:
        name = path.name.removesuffix(".damaged") if damaged else path.name
        if match := NAME.fullmatch(name):
            entries.append(Entry(int(match[1]), int(match[2]), path))
    return sorted(entries)


def saved_frames(logdir: str | os.PathLike[str]) -> int | None:
    """Environment frames of a run's newest checkpoint; None if it has no readable one."""
    try:
        entries = list_checkpoints(Path(logdir) / DIRECTORY)
    except UnreadableError:  # Callers are reporting a more important error.
        return None
    return entries[-1].step if entries else None


def not_saved(logdir: str | os.PathLike[str]) -> str:
    """The message after a run whose last checkpoint was not saved."""
    frames = saved_frames(logdir)
    newest = "none" if frames is None else f"{frames:,} frames"
    return f"the last checkpoint could NOT be saved (newest: {newest})"


def note_model(model: Path) -> None:
    """Notes in a run's exported model of which checkpoint it is, for `newer_than_model`."""
    frames = saved_frames(model.parent)
    if frames is not None:
        with contextlib.suppress(OSError):  # The model works without it.
            files.write_atomically(model / MODEL_FRAMES, f"{frames}\n")


def newer_than_model(model: Path) -> int | None:
    """Frames of the run's newest checkpoint, if a run's model is of an older one; else None."""
    frames = saved_frames(model.parent)
    try:
        noted = int((model / MODEL_FRAMES).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # Of an earlier version.
        return None
    return frames if frames is not None and frames > noted else None


def finished(frames: int) -> str:
    """What to say of a run that has nothing left to train after so many frames."""
    return (
        f"This run had already finished after {frames:,} frames. To continue it, raise "
        f"--total_environment_frames above that. {START_OVER}"
    )
