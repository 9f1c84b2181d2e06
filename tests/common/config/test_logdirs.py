"""The default --logdir, and what others may have planted there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from seed_rl.common.config import logdirs
from seed_rl.common.errors import UserError
from tests.helpers import run_python

STRANGER = 54321


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory like /tmp."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.chdir(folder)
    return folder


def give_away(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Makes a directory, or link, appear to be another user's; real ones need root."""
    lstat = Path.lstat

    def stranger(self: Path) -> Any:
        found = lstat(self)
        if self != path:
            return found
        return os.stat_result((*found[:4], STRANGER, *found[5:]))

    monkeypatch.setattr(Path, "lstat", stranger)


def test_a_directory_prepared_by_another_user(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards a run in /tmp from resuming another user's checkpoint, or following their link."""
    logdirs.check("runs/atari")  # Nothing is there.
    (shared / "runs").mkdir()
    logdirs.check("runs/atari")  # Our own.
    give_away(monkeypatch, shared / "runs")
    for path in ("runs", "runs/atari", "runs/deep/er"):
        with pytest.raises(UserError, match=f"{shared}/runs belongs to another user"):
            logdirs.check(path)
    logdirs.check(shared / "runs")  # An absolute path is the user's own choice.
    (shared / "runs").rmdir()
    (shared / "runs").symlink_to("/usr")
    with pytest.raises(UserError, match="belongs to another user"):
        logdirs.check("runs")


def test_folders_that_not_everyone_can_write_to(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards colleagues who share a project's folder, and root in a user's folder."""
    shared.chmod(0o775)
    (shared / "runs").mkdir()
    give_away(monkeypatch, shared / "runs")
    logdirs.check("runs/atari")


def test_programs_check(shared: Path) -> None:
    """As users see it; with a real other user, so only for root."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    (shared / "runs").mkdir()
    os.chown(shared / "runs", STRANGER, -1)
    for program in (
        ("seed_rl.gym.vtrace_main", "--run_mode=learner", "--only_check_args"),
        ("seed_rl.launch.stop",),
    ):
        result = run_python("-m", *program, code=2, cwd=shared)
        assert f"error: {shared}/runs belongs to another user" in result.stderr


def test_names_that_are_not_utf8() -> None:
    """Guards against a traceback of TensorFlow."""
    with pytest.raises(UserError, match=r"udcff' is not UTF-8"):
        logdirs.check(os.fsdecode(b"/tmp/\xff"))
