"""The progress file: reports the learner's progress to the supervisor and its panel.

The learner replaces `<logdir>/progress.json` about once a second.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seed_rl.common.system import durations, files

FILE_NAME = "progress.json"
ENDS = ("done", "stopped", "failed")
"""The final phases: all frames used or ended by a callback; stopped before that; an error."""
PHASES = ("starting", "training", "saving", *ENDS)
LEARNERS = "learner-{index}"
"""Directory within the run's for each of several learners except the first."""
SILENCE_S = 15.0
"""Learners and environments that are silent for longer are reported."""
_LONGEST_ETA_S = 100 * 365 * 86400.0
_TYPES = {"float": (int, float), "int": (int,), "str": (str,), "None": (type(None),)}


@dataclasses.dataclass(frozen=True)
class Progress:
    """A run's progress. Times are in seconds; frames are environment frames."""

    time: float
    """Unix time of writing; if it is old, the learner hangs or is gone."""
    pid: int
    phase: str
    """One of `PHASES`."""
    frames: int
    total_frames: int
    frames_per_s: float
    """Smoothed over about ten seconds."""
    train_steps: int
    episode_return_mean: float | None
    """Over the training episodes that ended in the last 5 % of frames, at most 100; None before the
    first."""
    episodes: int
    mean_inference_batch: float
    """Mean over the last second or so in which actors called."""
    eta_s: float | None
    """Seconds until `total_frames` at the current rate; None if unknown, for instance because
    training has stalled, or if the run has ended."""
    started: float
    """Unix time at which this learner started."""
    warning: str | None = None
    """Something that the user should know or fix; set only while it applies."""
    devices: str = ""
    """What infers and what trains."""
    reason: str | None = None
    """Why a callback has ended the run."""
    silent_envs: tuple[tuple[int, float], ...] = ()
    """(environment id, seconds since its last call) of each one silent for over `SILENCE_S`, and
    (environment id, seconds since the start) of each that has never called."""

    def line(self) -> str:
        """One line for the console."""
        share = 100 * self.frames / self.total_frames if self.total_frames else 0.0
        returns = "-" if self.episode_return_mean is None else f"{self.episode_return_mean:.4g}"
        eta = "" if self.eta_s is None else f" | ETA {durations.describe(self.eta_s)}"
        return (
            f"{self.phase}: {self.frames:,}/{self.total_frames:,} frames ({share:.1f}%) | "
            f"{self.frames_per_s:,.0f} frames/s | return {returns} ({self.episodes:,} episodes) | "
            f"{self.train_steps:,} updates | batch {self.mean_inference_batch:.1f}{eta}"
        )


def forget(logdir: Path) -> None:
    """Removes what all learners of a run have reported."""
    for directory in (logdir, *logdir.glob(LEARNERS.format(index="*"))):
        (directory / FILE_NAME).unlink(missing_ok=True)


def read(logdir: str | os.PathLike[str]) -> Progress | None:
    """The progress last written in `logdir`; None if it is missing or unreadable."""
    try:
        values = json.loads((Path(logdir) / FILE_NAME).read_text(encoding="utf-8"))
        values["silent_envs"] = tuple((int(i), float(s)) for i, s in values["silent_envs"])
        values = {"devices": "", "reason": None, **values}  # A run from before these fields.
        names = [field.name for field in dataclasses.fields(Progress)]
        progress = Progress(**{name: values[name] for name in names})
    except (OSError, ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None
    return progress if _well_typed(progress) else None


def _well_typed(progress: Progress) -> bool:
    """Whether all fields have their declared types and all floats are finite."""
    for field in dataclasses.fields(Progress):
        if field.name == "silent_envs":
            continue
        value = getattr(progress, field.name)
        types = [t for name in str(field.type).split(" | ") for t in _TYPES[name]]
        if type(value) not in types or (isinstance(value, float) and not math.isfinite(value)):
            return False
    return True


class RateMeter:
    """Smoothed rate of a growing count.

    An exponential average, bias-corrected so that the first values are right too: weights decay to
    1/e within `TIME_CONSTANT_S` seconds.

    Attributes:
      rate: the rate per second; 0 before the second update.
    """

    TIME_CONSTANT_S = 10.0

    def __init__(self) -> None:
        self.rate = 0.0
        self._last: tuple[float, float] | None = None  # The count, and the time when it grew.
        self._gap = 0.0  # How long it had taken to grow.
        self._sum = 0.0
        self._weight = 0.0

    def update(self, count: float, now: float) -> float:
        """Adds the count at time `now` (seconds) and returns the rate per second."""
        if self._last is None or now < self._last[1]:  # The clock was set back.
            self._last = (count, now)
        elif now > self._last[1]:
            elapsed = now - self._last[1]
            if count == self._last[0] and elapsed <= self._gap:
                return self.rate  # The next step is not due yet.
            keep = math.exp(-elapsed / self.TIME_CONSTANT_S)
            total = keep * self._sum + (1 - keep) * (count - self._last[0]) / elapsed
            weight = keep * self._weight + (1 - keep)
            self.rate = total / weight
            # What grows in steps has grown over all the time since the last one.
            if count != self._last[0]:
                self._last, self._gap = (count, now), elapsed
                self._sum, self._weight = total, weight
        return self.rate


class ProgressWriter:
    """Writes the progress file of one learner.

    Calling `update` often is cheap: between writes it only reads the clock. If the file cannot be
    written, a warning is logged and the run continues; on a full disk, the old file is overwritten
    in place.

    Args:
      logdir: an existing directory.
      total_frames: environment frames at which the run ends.
      frames: environment frames from which the run continues.
      period_s: seconds between writes; a new phase is written immediately.
      clock: returns Unix time; tests replace it.
      devices: see `Progress`.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        total_frames: int,
        frames: int = 0,
        period_s: float = 1.0,
        clock: Callable[[], float] = time.time,
        devices: str = "",
    ):
        self._path = Path(logdir) / FILE_NAME
        self._period_s = period_s
        self._clock = clock
        self._rate = RateMeter()
        self._warned = False
        now = clock()
        self._last = Progress(
            time=now,
            pid=os.getpid(),
            phase="starting",
            frames=frames,
            total_frames=total_frames,
            frames_per_s=0.0,
            train_steps=0,
            episode_return_mean=None,
            episodes=0,
            mean_inference_batch=0.0,
            eta_s=None,
            started=now,
            devices=devices,
        )
        self._write()

    @property
    def last(self) -> Progress:
        """The last progress written."""
        return self._last

    def due(self, periods: float = 1) -> bool:
        """Whether the last write was at least `periods` periods ago.

        After one period, the next `update` writes: gather costly values only then.
        """
        elapsed = self._clock() - self._last.time
        return elapsed >= periods * self._period_s or elapsed < 0  # The clock may be set back.

    def update(self, phase: str | None = None, last: bool = False, **values: Any) -> Progress:
        """Writes the new values if a write is due or the phase changes.

        Args:
          phase: one of `PHASES`; None keeps the last.
          last: whether training has ended: writes them in any case.
          **values: any of frames, train_steps, episode_return_mean, episodes,
            mean_inference_batch, total_frames, warning, reason, silent_envs. The others keep
            their values.

        Returns:
          The progress as of the last write.
        """
        phase = phase or self._last.phase
        if phase not in PHASES:
            raise ValueError(f"No such phase: {phase}")
        if phase == self._last.phase and not (last or self.due()):
            return self._last
        now = self._clock()
        progress = dataclasses.replace(self._last, time=now, phase=phase, **values)
        if phase == "training":  # The start-up does not count towards the rate.
            self._rate.update(progress.frames, now)
        rate = self._rate.rate
        left = max(0, progress.total_frames - progress.frames)
        # Stalled training drives this to infinity, which JSON cannot express.
        known = not last and phase not in ENDS and rate > left / _LONGEST_ETA_S
        eta_s = left / rate if known else None
        mean = progress.episode_return_mean
        self._last = dataclasses.replace(
            progress,
            frames_per_s=rate,
            eta_s=eta_s,
            # JSON has no NaN, and the reader need not be Python.
            episode_return_mean=mean if mean is not None and math.isfinite(mean) else None,
        )
        self._write()
        return self._last

    def _write(self) -> None:
        try:
            files.write_atomically(self._path, _text(self._last))
            self._warned = False
        except OSError as error:
            if not self._warned:
                logging.warning("Cannot write %s: %s. Training continues.", self._path, error)
            self._warned = True
            if files.is_no_room(error):
                self._overwrite()

    def _overwrite(self) -> None:
        """Reports a full disk by overwriting the file in place. Readers may see half of it."""
        warnings = filter(None, (self._last.warning, files.no_room(self._path.parent)))
        text = _text(dataclasses.replace(self._last, warning="; ".join(warnings)))
        with contextlib.suppress(OSError):
            with files.open_no_link(self._path, "r+b") as file:
                file.write(text.encode().ljust(os.fstat(file.fileno()).st_size))


def _text(progress: Progress) -> str:
    return json.dumps(dataclasses.asdict(progress)) + "\n"
