"""A learner with a mirror: signals, exit codes, and a bucket that fails."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from seed_rl.cluster import mirror, mirrored
from seed_rl.cluster.mirror import OWNER, DisplacedError
from seed_rl.cluster.remote_files import RemoteFiles
from seed_rl.common.errors import NotSavedError, UserError
from seed_rl.common.system.file_lock import try_lock
from tests.helpers import PROGRAMS
from tests.helpers.system_helpers import Program
from tests.helpers.waiting import PATIENCE_S, wait_until

LEARNER = str(PROGRAMS / "mirrored_learner.py")
PARENT = str(PROGRAMS / "mirroring_parent.py")


@pytest.fixture
def bucket(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "disk"))
    (tmp_path / "disk").mkdir()
    return tmp_path / "bucket"


def _run(bucket: pathlib.Path, code: int, seen: list[str] | None = None) -> int:
    seen = [] if seen is None else seen

    def command(logdir: pathlib.Path) -> list[str]:
        seen.append("start")
        return [sys.executable, LEARNER, str(logdir), str(code)]

    return mirrored.run(
        command, f"file://{bucket}/run", {}, lambda logdir: seen.append(logdir.name), 0.1
    )


def test_a_failed_learners_files_are_copied_and_its_code_is_returned(
    bucket: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    seen: list[str] = []
    assert _run(bucket, 1, seen) == 1
    assert _run(bucket, 3, seen) == 3
    assert (bucket / "run" / "lives").read_text() == "xx"  # The second continued the first's.
    # Before the learner starts, too: its address must not wait for a copy, which may fail.
    assert seen[:2] == ["run", "start"] and seen.count("run") > seen.count("start") == 2
    assert list((tmp_path / "disk").iterdir()) == []


def test_the_directory_is_locked_against_cleaners_of_temporary_files(bucket: pathlib.Path) -> None:
    """Guards config.json, which would then be removed from the bucket, too."""
    free: list[bool] = []

    def look(logdir: pathlib.Path) -> None:
        descriptor = os.open(logdir.parent, os.O_RDONLY)
        free.append(try_lock(descriptor))
        os.close(descriptor)

    command = ["true"]
    assert mirrored.run(lambda logdir: command, f"file://{bucket}/run", {}, look, 0.1) == 0
    assert free and not any(free)


@pytest.mark.parametrize("during", ["claim", "write", "restore"])
def test_a_stop_before_the_learner_has_started_is_not_a_finished_run(
    during: str, bucket: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a spot machine is taken away, with 30 s of notice, while it waits for the lease of
    the last learner or downloads the run; the next one waits no longer than before.
    """

    write = RemoteFiles.write

    def interrupted(place: mirrored.Mirror | RemoteFiles, *arguments: Any) -> None:
        if isinstance(place, RemoteFiles):  # The lease has just been written.
            monkeypatch.setattr(RemoteFiles, "write", write)
            write(place, *arguments)
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError(f"{during} continued")

    def command(logdir: pathlib.Path) -> list[str]:
        raise AssertionError("the learner was started")

    monkeypatch.setattr(RemoteFiles if during == "write" else mirrored.Mirror, during, interrupted)
    url = f"file://{bucket}/run"
    assert mirrored.run(command, url, {}, lambda logdir: None, 0.1, stopped_code=75) == 75
    owner = RemoteFiles(url).read(OWNER)
    assert owner is None if during == "claim" else json.loads(owner or b"")["owner"] is None


def test_a_learner_shows_life_between_rounds_of_copying(
    bucket: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise SEED_RL_COPY_SECS=300, or one large file, would let a second learner take over."""
    monkeypatch.setattr(mirror, "_BEAT_S", 0.01)
    remote = RemoteFiles(f"file://{bucket}/run")

    def stop_after_ten_beats() -> None:
        wait_until(lambda: re.search(rb'"beat": \d\d', remote.read(OWNER) or b""))
        signal.raise_signal(signal.SIGTERM)

    thread = threading.Thread(target=stop_after_ten_beats)
    thread.start()
    mirrored.run(
        lambda logdir: [sys.executable, LEARNER, str(logdir), "0"],
        remote.url,
        {},
        lambda logdir: None,
        period_s=1000.0,
    )
    thread.join()


def test_what_a_learner_saves_on_sigterm_is_copied(bucket: pathlib.Path) -> None:
    process = subprocess.Popen([sys.executable, PARENT, f"file://{bucket}/run"])
    wait_until(lambda: (bucket / "run" / "lives").exists())
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0
    assert (bucket / "run" / "saved").read_text() == "on SIGTERM"


def test_a_learner_does_not_outlive_its_mirror(bucket: pathlib.Path) -> None:
    process = subprocess.Popen([sys.executable, PARENT, f"file://{bucket}/run"])
    wait_until(lambda: (bucket / "run" / "lives").exists())
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    [learner] = children.read_text().split()
    process.kill()
    process.wait()
    wait_until(lambda: not pathlib.Path(f"/proc/{learner}/exe").exists())


def _in_background(
    bucket: pathlib.Path, action: str, until: Callable[[], bool] = lambda: True
) -> threading.Thread:
    """Changes the bucket as soon as the first files are there; one that fails, until a SIGTERM."""

    def change() -> None:
        wait_until(lambda: (bucket / "run" / "lives").exists())
        if action == "fails":
            (bucket / "run").rename(bucket / "moved")
            (bucket / "run").touch()
            wait_until(until)
            signal.raise_signal(signal.SIGTERM)
        else:
            RemoteFiles(f"file://{bucket}/run").write(OWNER, b'{"owner": "b", "host": "b"}')

    thread = threading.Thread(target=change)
    thread.start()
    return thread


def test_a_bucket_that_fails_does_not_stop_training_and_the_files_stay(
    bucket: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(mirrored, "_PAUSE_S", 0.01)
    said = "Training continues, and copying will be retried"
    thread = _in_background(bucket, "fails", lambda: said in caplog.text)
    with pytest.raises(NotSavedError, match="could not be copied to .*They are in (\\S+) on") as e:
        _run(bucket, 0)
    thread.join()
    logdir = pathlib.Path(str(e.value).split("They are in ")[1].split(" on this")[0])
    assert (logdir / "saved").read_text() == "on SIGTERM"
    assert e.value.exit_code == 5
    shutil.rmtree(logdir)


def test_a_displaced_learner_is_ended(bucket: pathlib.Path) -> None:
    thread = _in_background(bucket, "displaced")
    with pytest.raises(DisplacedError, match="Another learner is now writing to .*: b."):
        _run(bucket, 0)
    thread.join()
    assert list((bucket.parent / "disk").iterdir()) == []


def test_a_mistake_leaves_no_lease(bucket: pathlib.Path) -> None:
    """Guards the corrected command, which would wait until the lease has expired."""

    def mistaken(logdir: pathlib.Path) -> list[str]:
        raise UserError("a flag is wrong")

    with pytest.raises(UserError, match="a flag is wrong"):
        mirrored.run(mistaken, f"file://{bucket}/run", {}, lambda logdir: None, 0.1)
    assert json.loads(RemoteFiles(f"file://{bucket}/run").read(OWNER) or b"") == {"owner": None}


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("file:///dev/null/run", "--logdir=file:///dev/null/run"),
        ("gopher://x/y", "--logdir=gopher://x/y: Protocol not known"),
    ],
)
def test_a_learner_that_cannot_write_does_not_start(url: str, message: str) -> None:
    program = Program(
        *("seed_rl.cluster", "gym", "vtrace", "2", f"--logdir={url}"),
        environment={"SEED_RL_ROLE": "learner", "SEED_RL_ADDRESS": "localhost:8686"},
    )
    assert program.wait() == 2
    [error] = program.errors()
    assert message in error
    assert "vtrace_main" not in program.text()
