"""The file of finished episodes, continued on a machine that fails."""

import errno
import resource
import tracemalloc

from seed_rl.common.run_files import returns_log
from seed_rl.common.run_files.returns_log import EpisodeRow, ReturnsLog


def rows(*frames):
    return [EpisodeRow(n, 1.0, 2.0, 3.0, 4, 5, False, None) for n in frames]


def written(tmp_path):
    log = ReturnsLog(tmp_path)
    log.add(rows(10, 20, 30))
    log.flush()
    return tmp_path / returns_log.FILE_NAME


def test_a_damaged_line_costs_no_other(tmp_path):
    """Guards the episodes of a long run from what a power failure leaves in the file."""
    path = written(tmp_path)
    with path.open("ab") as file:
        file.write(b"\0\0\xff\xfe,\n40,1.0,2")
    ReturnsLog(tmp_path, start_frames=20)
    assert returns_log.read(path) == rows(10, 20)


def test_a_row_that_a_crash_cut_short_does_not_spoil_the_next(tmp_path):
    path = written(tmp_path)
    with path.open("ab") as file:
        file.write(b"30,1.0,2")
    log = ReturnsLog(tmp_path, start_frames=30)
    log.add(rows(40))
    log.flush()
    assert returns_log.read(path) == rows(10, 20, 30, 40)


def test_late_rows_are_removed_without_room_or_memory_for_a_copy(tmp_path):
    """Guards the order of frames from a disk that is full, and the memory of a learner that
    continues a run of millions of episodes."""
    path = written(tmp_path)
    with path.open("ab") as file:
        file.writelines([b"15" + b"," * 100 + b"\n"] * 20_000)
        file.write(b"40,1,2,3,4,5,0,\n")
    before = path.stat().st_ino, path.stat().st_size
    tracemalloc.start()
    try:
        ReturnsLog(tmp_path, start_frames=30)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (path.stat().st_ino, path.stat().st_size) == (before[0], before[1] - 16)
    assert peak < 500_000


def test_what_a_link_points_to_stays_as_it_is(tmp_path):
    """Guards files elsewhere from whoever may write to the logdir (docs/security.md)."""
    path = written(tmp_path)
    other = path.rename(tmp_path / "other.csv")
    path.symlink_to(other)
    ReturnsLog(tmp_path, start_frames=10)
    assert returns_log.read(other) == rows(10, 20, 30) and returns_log.read(path) == []


def test_a_run_that_has_ended_keeps_its_last_episodes(tmp_path):
    """Guards them from a second start, which trains no more; they end after its last checkpoint."""
    path = written(tmp_path)
    ReturnsLog(tmp_path, start_frames=None)
    assert returns_log.read(path) == rows(10, 20, 30)


def test_a_file_that_cannot_be_read_for_now_stays(tmp_path, monkeypatch, caplog):
    """Guards the episodes from a network disk that is away when a run continues."""
    path = written(tmp_path)

    def away(path, frames):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(returns_log, "_cut", away)
    log = ReturnsLog(tmp_path, start_frames=20)
    assert "Cannot update" in caplog.text
    log.add(rows(40))
    log.flush()
    monkeypatch.undo()
    assert returns_log.read(path) == rows(10, 20, 30, 40)


def test_rows_that_a_full_disk_took_in_part_are_written_once(tmp_path):
    """Guards the order of frames, which plots and studies rely on, and the rows beside the cut."""
    path = written(tmp_path)
    log = ReturnsLog(tmp_path, start_frames=30)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 40, hard))
    try:
        log.add(rows(40, 50, 60))
        log.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert returns_log.read(path) == rows(10, 20, 30)
    log.flush()
    assert returns_log.read(path) == rows(10, 20, 30, 40, 50, 60)
