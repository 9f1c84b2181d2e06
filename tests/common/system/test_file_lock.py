"""The lock that keeps a second learner out of a directory."""

from __future__ import annotations

import errno
import fcntl
import os
import pathlib
import subprocess
import sys
from unittest import mock

import pytest

from seed_rl.common.errors import UserError
from seed_rl.common.system.file_lock import LearnerLock, try_lock
from seed_rl.launch import run_lock, stop
from seed_rl.launch.process import Process
from seed_rl.launch.run_lock import RunLock
from tests.helpers import PROGRAMS


def test_held_until_release(tmp_path: pathlib.Path) -> None:
    lock = LearnerLock(tmp_path)
    with pytest.raises(UserError, match="A learner is already running"):
        LearnerLock(tmp_path)
    lock.release()
    LearnerLock(tmp_path).release()


def test_names_its_holder_and_ends_with_it(tmp_path: pathlib.Path) -> None:
    """Also with kill -9, after which a run must be able to resume at once."""
    program = [sys.executable, PROGRAMS / "lock_holder.py", tmp_path]
    holder = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
    with pytest.raises(UserError, match=f"process {holder.pid}"):
        LearnerLock(tmp_path)
    holder.kill()
    holder.communicate()
    LearnerLock(tmp_path).release()


def test_links_are_not_followed(tmp_path: pathlib.Path) -> None:
    """Guards other files of the user, to which another user's logdir may link."""
    (tmp_path / "precious").write_text("kept")
    for name in ("learner.pid", "supervisor.pid", "learner.log"):
        (tmp_path / name).symlink_to("precious")
    for lock in (LearnerLock, RunLock):
        with pytest.raises(UserError, match=r"Cannot write to .*\.pid is a symbolic link"):
            lock(tmp_path)
    with pytest.raises(OSError, match="learner.log is a symbolic link"):
        Process("learner", ["true"], tmp_path / "learner.log").start()
    assert (tmp_path / "precious").read_text() == "kept"


def test_a_file_system_without_locks_is_used_with_a_warning(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Guards runs on Lustre without `-o flock`."""
    monkeypatch.setattr(fcntl, "flock", mock.Mock(side_effect=OSError(errno.ENOSYS, "no locks")))
    for lock in (LearnerLock, RunLock):
        lock(tmp_path).release()
    assert caplog.text.count("does not support file locks") == 2


@pytest.mark.parametrize("started", [" 1", None])
def test_a_process_of_another_machine_is_not_stopped(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, started: str | None
) -> None:
    """Guards unrelated processes: the logdir may be shared, while process ids are not."""
    lock = RunLock(tmp_path)
    signalled: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _: (signalled.append(pid), lock.release()))
    if started is not None:
        (tmp_path / "supervisor.pid").write_text(f"{os.getpid()}{started}\n")
        with pytest.raises(UserError, match="stop it in its container, or on its machine"):
            stop.stop(tmp_path)
        lock.release()
    else:
        stop.stop(tmp_path)
    assert signalled == [os.getpid()] * 2 * (started is None)


@pytest.mark.parametrize("content", ["-1", "0", "1", "pid", "4194305", "9" * 5000, ""])
def test_only_a_process_is_stopped(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    """Guards all other processes of the user: kill(-1) signals each of them."""
    lock = RunLock(tmp_path)
    (tmp_path / "supervisor.pid").write_text(content)
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("signalled"))
    with pytest.raises(UserError, match="supervisor.pid does not contain a run's process id"):
        stop.stop(tmp_path)
    lock.release()
    assert run_lock.running_pid(tmp_path) is None


def test_who_asks_is_no_run(tmp_path: pathlib.Path) -> None:
    """Guards two programs that ask at the same time, each of which had the other for a run."""
    RunLock(tmp_path).release()
    with open(tmp_path / "supervisor.pid", "rb") as asking:
        assert try_lock(asking.fileno(), shared=True)
        assert run_lock.running_pid(tmp_path) is None


def test_a_directory_that_cannot_be_written(tmp_path: pathlib.Path) -> None:
    (tmp_path / "learner.pid").mkdir()
    with pytest.raises(UserError, match="Cannot write to --logdir"):
        LearnerLock(tmp_path)
