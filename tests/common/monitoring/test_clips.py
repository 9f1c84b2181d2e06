"""`--video_every`: clips of the agent while it trains."""

from __future__ import annotations

import functools
import io
import logging
import pathlib
import signal
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from seed_rl.common.callbacks import Report, Run
from seed_rl.common.errors import UserError
from seed_rl.common.monitoring import clips
from seed_rl.common.run_files.progress import ProgressWriter
from tests.helpers import stand_in
from tests.helpers.system_helpers import site
from tests.helpers.waiting import wait_until

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("imageio")

FILMED = "tests.helpers.odd_envs:FilmedWithoutTensorFlow"


@pytest.mark.nightly
def test_a_clip_is_in_tensorboard_while_the_agent_trains(
    tmp_path: pathlib.Path, socket_address: str
) -> None:
    """Guards the whole way, with a wrapper that `play` would not trust in a run of others."""
    shared = (
        *("--env_name=CartPole-v1", "--num_envs=4", "--env_batch_size=4"),
        # Slow, so that training leaves the cores to what films.
        f"--env_wrappers={FILMED},tests.helpers.slow_env:Slow",
    )
    with site(tmp_path, socket_address, *shared) as place:
        logdir = place.logdir
        learner = place.learner("--video_every=1000000000", "--log_period_secs=1", "--nosave_model")
        place.actor(0)
        (film,) = wait_until(lambda: [*(logdir / "videos").glob("*.gif")], running=learner)
        # Not the first point of the curves, and while training continues.
        wait_until(lambda: "Filmed the agent of" in learner.text(), running=learner)
        learner.send(signal.SIGTERM)
        assert learner.wait() == 0, learner.text()
    shown: dict[str, Any] = {}
    (path,) = logdir.glob("events.out.tfevents.*")
    for event in tf.compat.v1.train.summary_iterator(str(path)):
        shown |= {value.tag: (event.step, value) for value in event.summary.value}
    assert tf.make_ndarray(shown["speed/callbacks/Clips_s"][1].tensor) < 20
    frames, clip = shown["clips/agent"]
    assert clip.metadata.plugin_data.plugin_name == "images"
    assert film.name == f"frames-{frames:012d}.gif" and frames < 10**6
    width, height, encoded = clip.tensor.string_val
    assert (width, height) == (b"300", b"200") and encoded == film.read_bytes()
    movie = Image.open(io.BytesIO(encoded))
    assert movie.format == "GIF" and movie.size == (300, 200) and movie.n_frames > 5


class Shown:
    """In place of the reporter."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.clips: list[tuple[int, bytes]] = []

    def warn(self, source: str, text: str) -> None:
        self.warnings.append(text)

    def clip(self, frames: int, gif: bytes) -> None:
        self.clips.append((frames, gif))


class Filming:
    """A run whose processes that film are `script`."""

    def __init__(self, folder: pathlib.Path, monkeypatch: Any, script: str):
        monkeypatch.setattr(sys, "executable", str(stand_in(folder / "python", script)))
        self._progress = ProgressWriter(folder, 10**6)
        self.shown, self.saved, self.stopped = Shown(), 0, False
        self.clips = clips.Clips(100, self.shown, lambda: self.stopped)  # type: ignore[arg-type]
        # Their folders.
        (folder / "tmp").mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(folder / "tmp"))
        self.clips.run = Run(folder, {"program": "x"}, self._save)
        self.clips.on_start()

    def _save(self, directory: pathlib.Path) -> pathlib.Path:
        self.saved += 1
        return directory

    def report(self, frames: int, last: bool = False) -> None:
        progress = self._progress.update("training", last=True, frames=frames)
        self.clips.on_report(Report(progress, {}, (), None, last))


@pytest.fixture
def filming(tmp_path: pathlib.Path, monkeypatch: Any) -> Callable[[str], Filming]:
    return functools.partial(Filming, tmp_path, monkeypatch)


# The last argument is --video=FILE.
FILMS = 'for last; do :; done; echo "$CUDA_VISIBLE_DEVICES $(nice) $@" > "${last#--video=}"'


def test_one_at_a_time_and_as_often_as_asked(filming: Any, tmp_path: pathlib.Path) -> None:
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    run = filming(f"{wait}; {FILMS}")
    for frames in (30, 90, 130, 250):
        run.report(frames)
    assert run.saved == 1 and not run.shown.clips
    (tmp_path / "go").touch()

    def filmed() -> bool:
        run.report(260)
        return bool(run.shown.clips)

    wait_until(filmed)
    ((frames, clip),) = run.shown.clips
    assert frames == 30 and (tmp_path / "videos/frames-000000000030.gif").read_bytes() == clip
    hidden, niceness, *arguments = clip.decode().split()
    assert hidden == "-1" and int(niceness) >= clips._NICENESS
    assert arguments[:2] == ["-m", "seed_rl.play"] and "--trust" in arguments
    # What is run is not in the logdir, into which others may be able to write.
    assert tmp_path / "tmp" in pathlib.Path(arguments[2]).parents
    run.report(270)
    run.clips.on_end("done")  # Waits.
    assert [frames for frames, _ in run.shown.clips] == [30, 270] and run.saved == 2
    assert not pathlib.Path(arguments[2]).exists()


def test_a_run_that_had_finished_is_not_filmed_again(filming: Any) -> None:
    """It ends without a report."""
    run = filming(FILMS)
    run.clips.on_end("done")
    assert run.saved == 0


@pytest.mark.parametrize("stopped", [False, True])
def test_the_trained_agent_is_filmed(filming: Any, stopped: bool) -> None:
    """After a clip that was in progress. Guards short runs, whose only report is the last; Ctrl-C
    does not wait for a film.
    """
    run = filming(FILMS)
    run.stopped = stopped
    run.report(30)
    run.report(130, last=True)
    assert run.saved == 1  # The last checkpoint comes first.
    run.clips.on_end("stopped" if stopped else "done")
    filmed = [frames for frames, _ in run.shown.clips]
    assert 130 not in filmed if stopped else filmed == [30, 130]


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo 'error: <Blind> cannot be recorded.' >&2; exit 2", "<Blind> cannot"),
        ("exit 1", "exit code 1"),
        ("true", "No such file"),
    ],
)
def test_a_failure_is_one_warning(filming: Any, caplog: Any, script: str, problem: str) -> None:
    """Guards the learner, and the machine from processes that fail again and again."""
    caplog.set_level(logging.WARNING)
    run = filming(script)

    def failed() -> bool:
        run.report(500)
        return bool(run.shown.warnings)

    wait_until(failed)
    for frames in range(1000, 2000, 100):
        run.report(frames)
    run.clips.on_end("done")
    (warning,) = run.shown.warnings
    (record,) = caplog.records
    assert "--video_every" in warning and problem in warning and warning in record.getMessage()
    assert run.saved == 1


@pytest.mark.parametrize("phase", ["stopped", "done"])
def test_a_stop_does_not_wait_for_a_clip(filming: Any, tmp_path: pathlib.Path, phase: str) -> None:
    """Nor does one that comes while a finished run waits; nothing is left behind."""
    run = filming(f"echo $$ > {tmp_path}/pid; exec sleep 1000")
    run.report(1)
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    run.stopped = phase == "done"
    run.clips.on_end(phase)
    assert not run.shown.clips and not run.shown.warnings and not (tmp_path / "videos").exists()
    assert not pathlib.Path("/proc", (tmp_path / "pid").read_text().strip()).exists()
    assert not list((tmp_path / "tmp").iterdir())


def test_what_cannot_be_started_is_one_warning(
    filming: Any, tmp_path: pathlib.Path, monkeypatch: Any
) -> None:
    """Guards training from machines without processes or temporary files to spare."""
    run = filming("true")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "missing"))
    run.report(1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    run.clips._due = 0
    run.report(2)
    first, second = run.shown.warnings
    assert "missing" in first and "missing" in second and run.saved == 1
    run.clips.on_end("done")
    assert not list((tmp_path / "tmp").iterdir())


def test_what_is_missing_is_said_before_training(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    """Guards runs of hours without the clips that were asked for."""
    film = clips.Clips(100, Shown())  # type: ignore[arg-type]
    film.run = Run(tmp_path, {}, lambda directory: directory)
    with pytest.raises(UserError, match="--video_every films runs of programs with flags"):
        film.on_start()
    monkeypatch.setitem(sys.modules, "imageio", None)
    with pytest.raises(UserError, match="--video_every needs .* -m pip install imageio"):
        film.on_start()
