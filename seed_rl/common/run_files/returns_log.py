"""`returns.csv`: one row per finished episode, for plots."""

from __future__ import annotations

import contextlib
import csv
import io
import logging
import math
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

FILE_NAME = "returns.csv"
_HEADER = "frames,time,return,raw_return,episode_frames,env_id,evaluation,success\n"
_FLUSH_PERIOD_S = 1.0
_MOST_ROWS_HELD = 100_000


class EpisodeRow(NamedTuple):
    """One finished episode.

    Attributes:
      frames: environment frames that the run's training environments had acted when the episode
        ended, with the resets after truncations. Fewer have been trained on, or inserted into a
        replay: the rest still waits.
      time: Unix time in seconds.
      episode_return: sum of the rewards.
      raw_return: sum of the unshaped rewards, the game's score.
      episode_frames: length in environment frames.
      env_id: id of the environment.
      evaluation: whether it is an evaluation environment.
      success: 1 if it reached its goal (`info["is_success"]`), 0 if not; None: not known.
    """

    frames: int
    time: float
    episode_return: float
    raw_return: float
    episode_frames: int
    env_id: int
    evaluation: bool
    success: float | None = None


def read(path: str | os.PathLike[str]) -> list[EpisodeRow]:
    """The rows of a file, except lines that a crash or a disk has damaged."""
    with open(path, encoding="utf-8", errors="replace") as file:
        rows = (_parse(line.rstrip("\n").split(",")) for line in file)
        return [row for row in rows if row is not None]


class ReturnsLog:
    """Appends finished episodes to a run's file.

    If the file cannot be written or read, a warning is logged and the run continues; unreadable
    content stays.

    Args:
      logdir: an existing directory.
      start_frames: environment frames from which the run continues. The first row with more, and
        all after it, which an earlier process wrote after its last checkpoint, are removed, so that
        frames never decrease. None: the run is not continued, and all rows stay.
    """

    def __init__(self, logdir: str | os.PathLike[str], start_frames: int | None = 0):
        self._path = Path(logdir) / FILE_NAME
        self._held: list[EpisodeRow] = []
        self._flushed = time.monotonic()
        self._warned = False
        with self._warn_of_errors():
            _cut(self._path, math.inf if start_frames is None else start_frames)

    def add(self, rows: Iterable[EpisodeRow]) -> None:
        """Adds rows; writes all pending ones about once a second."""
        self._held += rows
        if time.monotonic() - self._flushed >= _FLUSH_PERIOD_S:
            self.flush()

    def flush(self) -> None:
        """Writes all pending rows."""
        self._flushed = time.monotonic()
        if not self._held:
            return
        with self._warn_of_errors():
            _append(self._path, _format(self._held).encode())
            self._held = []
            self._warned = False
        del self._held[:-_MOST_ROWS_HELD]

    @contextlib.contextmanager
    def _warn_of_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not self._warned:
                logging.warning("Cannot update %s: %s. Training continues.", self._path, error)
            self._warned = True


def _cut(path: Path, frames: float) -> None:
    """Removes the first row with more frames and all after it, or an unfinished last line.

    In place and line by line, as there may be no room, and no memory, for a copy.
    """
    if path.is_symlink():  # It might point anywhere.
        path.unlink()
    with open(path, "a+b") as file:
        file.seek(0)
        end = 0
        for line in file:
            number = line.partition(b",")[0]
            if not line.endswith(b"\n") or number.isdigit() and int(number) > frames:
                break
            end += len(line)
        file.truncate(end)
        if not end:
            file.write(_HEADER.encode())


def _append(path: Path, text: bytes) -> None:
    """Appends all of `text`, or nothing: a full disk takes a part, which a retry would repeat."""
    with open(path, "ab", buffering=0) as file:
        end = file.tell()
        try:
            while text:
                text = text[file.write(text) :]
        except OSError:
            file.truncate(end)
            raise


def _format(rows: Iterable[EpisodeRow]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        (
            row.frames,
            f"{row.time:.3f}",
            f"{row.episode_return:.6g}",
            f"{row.raw_return:.6g}",
            row.episode_frames,
            row.env_id,
            int(row.evaluation),
            "" if row.success is None else f"{row.success:g}",
        )
        for row in rows
    )
    return text.getvalue()


def _parse(line: list[str]) -> EpisodeRow | None:
    try:
        # The first files had no successes.
        frames, when, episode_return, raw_return, episode_frames, env_id, evaluation, *rest = line
        success, *rest = rest or [""]
        if rest:
            return None
        return EpisodeRow(
            int(frames),
            float(when),
            float(episode_return),
            float(raw_return),
            int(episode_frames),
            int(env_id),
            bool(int(evaluation)),
            float(success) if success else None,
        )
    except ValueError:
        return None
