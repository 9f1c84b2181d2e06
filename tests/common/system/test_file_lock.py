"""The lock that keeps a second learner out of a directory."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from seed_rl.common.errors import UserError
from seed_rl.common.system.file_lock import LearnerLock
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


def test_a_directory_that_cannot_be_written(tmp_path: pathlib.Path) -> None:
    (tmp_path / "learner.pid").mkdir()
    with pytest.raises(UserError, match="Cannot write to --logdir"):
        LearnerLock(tmp_path)
