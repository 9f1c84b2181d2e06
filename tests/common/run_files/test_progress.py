"""The progress file, and that reading it needs no TensorFlow."""

import errno
import json
import os
import threading

import pytest

from seed_rl.common.run_files import progress
from seed_rl.common.run_files.progress import ProgressWriter, RateMeter
from tests.helpers.clock import Clock


def test_the_file_follows_the_contract(tmp_path):
    clock = Clock(1000.0)
    writer = ProgressWriter(tmp_path, total_frames=10_000, frames=500, clock=clock)
    first = progress.read(tmp_path)
    assert (first.phase, first.frames) == ("starting", 500)
    writer.update("training", frames=1000)
    clock.now += 10
    writer.update(
        frames=2000,
        train_steps=4,
        episode_return_mean=-20.5,
        episodes=3,
        mean_inference_batch=7.5,
        warning="mice",
        silent_envs=((3, 40.5),),
    )
    content = json.loads((tmp_path / "progress.json").read_text())
    assert content == {
        "time": 1010.0,
        "pid": os.getpid(),
        "phase": "training",
        "frames": 2000,
        "total_frames": 10_000,
        "frames_per_s": pytest.approx(100),
        "train_steps": 4,
        "episode_return_mean": -20.5,
        "episodes": 3,
        "mean_inference_batch": 7.5,
        "eta_s": pytest.approx(80),
        "started": 1000.0,
        "warning": "mice",
        "devices": "",
        "reason": None,
        "silent_envs": [[3, 40.5]],
    }
    assert progress.read(tmp_path).silent_envs == ((3, 40.5),)
    line = progress.read(tmp_path).line()
    assert "2,000/10,000 frames (20.0%)" in line
    assert "ETA 0:01:20" in line


def test_it_is_written_once_a_second_and_at_each_new_phase(tmp_path):
    clock = Clock(1000.0)
    writer = ProgressWriter(tmp_path, 100, clock=clock)
    writer.update("training", frames=1)
    clock.now += 0.5
    assert not writer.due()
    writer.update(frames=2)
    assert progress.read(tmp_path).frames == 1
    writer.update("saving", frames=3)
    assert progress.read(tmp_path).frames == 3
    clock.now += 1
    assert writer.due()
    writer.update(frames=4)
    assert progress.read(tmp_path).frames == 4
    clock.now -= 3600  # The clock is set back: the file must not stand still for an hour.
    assert writer.due()
    with pytest.raises(ValueError, match="phase"):
        writer.update("sleeping")


def test_a_return_that_is_no_number_becomes_null(tmp_path):
    writer = ProgressWriter(tmp_path, 100)
    writer.update("done", episode_return_mean=float("nan"))
    content = (tmp_path / "progress.json").read_text()
    assert json.loads(content, parse_constant=pytest.fail)["episode_return_mean"] is None


def test_no_time_is_left_to_tell_when_training_stands_still(tmp_path):
    """Guards learner and supervisor, which show the time left, against actors that are silent."""
    clock = Clock(1000.0)
    writer = ProgressWriter(tmp_path, 10**9, clock=clock)
    for second in range(60):
        clock.now += 1
        writer.update("training", frames=1000 * second)
    assert 900_000 < writer.last.eta_s < 1_100_000
    for _ in range(120):  # The rate ends at 0: it has no smaller number.
        clock.now += 100
        assert writer.last.line().isascii(), "it is printed to whatever encoding"
        writer.update(warning="no actor")
    assert writer.last.eta_s is None
    json.loads((tmp_path / "progress.json").read_text(), parse_constant=pytest.fail)


def test_a_run_that_is_done_has_no_time_left(tmp_path):
    clock = Clock(1000.0)
    writer = ProgressWriter(tmp_path, 1000, clock=clock)
    for frames in (0, 1000):
        clock.now += 1
        writer.update("training", frames=frames)
    assert writer.last.eta_s == 0
    clock.now += 1
    writer.update("done", frames=500, reason="it is good enough")  # A callback's.
    assert progress.read(tmp_path).eta_s is None and "ETA" not in writer.last.line()


def test_a_full_disk_is_told_in_the_file(tmp_path, monkeypatch):
    """Guards readers: without a free block, no new file can replace it."""
    clock = Clock(1000.0)
    writer = ProgressWriter(tmp_path, 1000, clock=clock)

    def no_room(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(progress.files, "write_atomically", no_room)
        writer.update("training", frames=500, warning="no actor " + 50 * "!")
        clock.now += 1
        writer.update(frames=700, warning=None)
    found = progress.read(tmp_path)
    assert found.frames == 700 and found.warning == f"no space left in {tmp_path}"
    clock.now += 1
    writer.update()
    assert progress.read(tmp_path).warning is None


def test_the_rate_is_smoothed_and_right_from_the_start():
    meter = RateMeter()
    assert meter.update(0, now=0) == 0
    assert meter.update(50, now=1) == pytest.approx(50)
    for second in range(2, 100):
        meter.update(50 * second, now=second)
    assert meter.rate == pytest.approx(50)
    assert 50 < meter.update(50 * 99 + 150, now=100) < 70  # One fast second moves it little.


@pytest.mark.parametrize("period", [1, 4, 13, 30])
def test_the_rate_of_slow_steps_includes_the_time_between_them(period):
    """Guards frames/s and the ETA of runs whose training steps are many seconds apart."""
    meter = RateMeter()
    for second in range(20 * period + 1):
        rate = meter.update(second // period * 5 * period, now=second)
        assert rate == (pytest.approx(5) if second >= period else 0)
    assert 0 < meter.update(100 * period, now=second + 3 * period) < 4  # A stall.


def test_the_rate_survives_a_clock_that_is_set_back():
    meter = RateMeter()
    for second in (*range(1000, 1100), *range(100)):
        meter.update(5 * second, now=second)
    assert meter.rate == pytest.approx(5)


@pytest.mark.parametrize("content", [None, "", '{"time": 1', "[]", '{"time": 1}', "[" * 99_999])
def test_a_file_that_cannot_be_read_is_no_progress(tmp_path, content):
    if content is not None:
        (tmp_path / "progress.json").write_text(content)
    assert progress.read(tmp_path) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("frames", "7"), ("frames", 7.5), ("eta_s", 1e999), ("warning", ["mice"])),
        *(("phase", None), ("silent_envs", [[1e999, 1]])),
    ],
)
def test_values_of_other_types_are_no_progress(tmp_path, name, value):
    """Guards the supervisor, which shows them, against a file that something else wrote."""
    ProgressWriter(tmp_path, 100)
    file = tmp_path / "progress.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), name: value}))
    assert progress.read(tmp_path) is None


def test_a_reader_never_sees_half_a_file(tmp_path):
    writer = ProgressWriter(tmp_path, 100, period_s=0)
    stop = threading.Event()

    def write():
        frames = 0
        while not stop.is_set():
            frames += 1
            writer.update("training", frames=frames)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert all(progress.read(tmp_path) is not None for _ in range(500))
    finally:
        stop.set()
        thread.join()
    assert [p.name for p in tmp_path.iterdir()] == ["progress.json"]


def test_an_unwritable_file_is_warned_of_once(tmp_path, caplog):
    (tmp_path / "progress.json").mkdir()
    writer = ProgressWriter(tmp_path, 100, period_s=0)
    for frames in range(3):
        writer.update("training", frames=frames)
    assert writer.last.frames == 2
    assert len([r for r in caplog.records if "Training continues" in r.getMessage()]) == 1
