"""Clips of the agent in TensorBoard while it trains (`--video_every`)."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from seed_rl.common.callbacks import Callback, Report
from seed_rl.common.errors import INTERRUPTED, UserError
from seed_rl.common.monitoring.reporting import Reporter
from seed_rl.common.run_files import run_record
from seed_rl.common.system import files, nvidia
from seed_rl.common.system.extras import missing_extra

DIRECTORY = "videos"
_STEPS = 400  # TensorBoard loads whole clips: 3 MB for MuJoCo's pictures, 0.1 MB for Pong's.
_NICENESS = 10
_LONGEST_S = 1800.0  # A machine may be busy, but a hanging driver must not take all later clips.
_AT_END_S = 60.0
_POLL_S = 0.1


class Clips(Callback):
    """Films the agent at intervals, in a separate process that runs `seed_rl.play`.

    Training waits only while a checkpoint is saved for it. The process has a low priority and no
    GPU. Only one runs at a time: clips that are due meanwhile are skipped. After a clip that fails,
    no more are tried; training continues.

    The process may run the code that the checkpoint names, because that code already runs here. So
    the checkpoint is in a folder that no other user can write to, rather than in the logdir. Each
    clip has its own folder: a cleaner of temporary folders might remove one that is kept for days,
    and then anybody could create it again.

    Args:
      every: environment frames from the start of one clip to that of the next.
      reporter: shows clips in TensorBoard, and failures as warnings.
      stopped: whether the run was asked to stop; ends the wait for the last clip.
    """

    def __init__(self, every: int, reporter: Reporter, stopped: Callable[[], bool] = lambda: False):
        self._every, self._reporter, self._stopped = every, reporter, stopped
        self._due, self._now = 0, -1  # -1: no report yet, so nothing has been trained here.
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def on_start(self) -> None:
        """See `Callback`.

        Raises:
          UserError: imageio is not installed, or `seed_rl.play` could not start this program.
        """
        try:
            import imageio  # noqa: F401
        except ImportError as error:
            raise missing_extra("video", "--video_every", error) from error
        if run_record.PROGRAM not in self.run.options:
            raise UserError(
                "--video_every films runs of programs with flags. Start yours with `seed-rl train` "
                "or an agent's `program.main`, or leave it out."
            )

    def on_report(self, report: Report) -> None:
        self._now = report.frames
        if self._process is not None:
            self._look()
        elif not report.last:  # `on_end` follows, after the last checkpoint.
            self._film_if_due()

    def on_end(self, phase: str) -> None:
        """Films the trained agent if a clip is due, and waits up to a minute; not if stopped."""
        until = time.monotonic() + (_AT_END_S if phase == "done" else 0)
        self._wait(until)
        if phase == "done" and not self._stopped():
            self._film_if_due()
            self._wait(until)

    def _film_if_due(self) -> None:
        if self._now < self._due:
            return
        self._due = self._now - self._now % self._every + self._every
        try:
            self._start(self._now)
        except OSError as error:
            self._end()
            self._fail(error)

    def _wait(self, until: float) -> None:
        while self._process is not None:
            if self._process.poll() is not None:
                self._look()
            elif time.monotonic() > until or self._stopped():
                logging.info("The clip of the agent of %d frames is left out.", self._frames)
                self._end()
            else:
                time.sleep(_POLL_S)

    def _start(self, frames: int) -> None:
        self._folder = tempfile.TemporaryDirectory(
            prefix="seed_rl_clips_", ignore_cleanup_errors=True
        )
        folder = Path(self._folder.name)
        self._clip, self._log = folder / "clip.gif", folder / "log"
        if self.run.save(folder) is None:  # `save` has warned.
            self._end()
            return
        self._frames, self._began = frames, time.monotonic()
        arguments = ("--trust", "--episodes=1", f"--steps={_STEPS}", f"--video={self._clip}")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "seed_rl.play", str(folder), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, nvidia.VISIBLE: "-1"},
            )
        os.setpriority(os.PRIO_PROCESS, self._process.pid, _NICENESS)

    def _look(self) -> None:
        """Shows the clip if it is complete."""
        assert self._process is not None
        code, seconds = self._process.poll(), time.monotonic() - self._began
        if code is None and seconds < _LONGEST_S:
            return
        try:
            if code is None:
                raise UserError(f"a clip took more than {_LONGEST_S:.0f} s.")
            if code == INTERRUPTED:  # By the Ctrl-C at the terminal that ends this run.
                return
            if code:
                lines = self._log.read_text(errors="replace").splitlines()
                words = [line for line in lines if line.strip()] or [f"exit code {code}"]
                raise UserError(words[-1].removeprefix("error: "))
            clip = self._clip.read_bytes()
            folder = self.run.logdir / DIRECTORY
            folder.mkdir(exist_ok=True)
            with files.open_no_link(folder / f"frames-{self._frames:012d}.gif", "wb") as file:
                file.write(clip)
        except (UserError, OSError) as error:
            self._fail(error)
            return
        finally:
            self._end()
        self._reporter.clip(self._frames, clip)
        logging.info("Filmed the agent of %d frames in %.0f s.", self._frames, seconds)

    def _fail(self, error: Exception) -> None:
        self._due = sys.maxsize
        warning = f"no more clips of the agent (--video_every): {error}"
        logging.warning("%s Training continues.", warning)
        self._reporter.warn(DIRECTORY, warning)

    def _end(self) -> None:
        """Ends the process, if it still runs, and removes its folder."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
