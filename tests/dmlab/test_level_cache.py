"""The cache of levels: many writers, and file systems that fail."""

from __future__ import annotations

import errno
import itertools
import multiprocessing
import os
import pathlib
import shutil
import sys
from concurrent import futures
from typing import Any

import pytest

from seed_rl.common.errors import UserError
from seed_rl.dmlab import level_cache
from seed_rl.dmlab.environment import LevelCache
from tests.helpers.clock import Clock
from tests.helpers.waiting import PATIENCE_S

SIZE = 200_000
PROCESSES, THREADS, ROUNDS, KEYS = 2, 2, 25, 3


@pytest.fixture(autouse=True)
def _nothing_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(level_cache, "_warned", set())


@pytest.fixture
def level(tmp_path: pathlib.Path) -> pathlib.Path:
    """A compiled level."""
    path = tmp_path / "level.pk3"
    path.write_bytes(b"level")
    return path


def fetched(cache: LevelCache, key: str, folder: pathlib.Path) -> bytes | None:
    path = folder / "fetched.pk3"
    path.unlink(missing_ok=True)
    found = cache.fetch(key, str(path))
    assert found == path.exists()
    assert not [name for name in os.listdir(folder) if name.startswith("fetched.pk3.")]
    return path.read_bytes() if found else None


@pytest.mark.parametrize(
    "key", ["1a2b", "a/b c", "..", ".", "map.pk3", "ünï%2F", "a\0", "\udc80", "long" * 999]
)
def test_what_was_written_is_fetched(tmp_path: pathlib.Path, level: pathlib.Path, key: str) -> None:
    """Guards also keys that look like paths: all entries are files in the directory."""
    cache = LevelCache(str(tmp_path / "new" / "cache"))
    assert fetched(cache, key, tmp_path) is None
    cache.write(key, str(level))
    assert fetched(cache, key, tmp_path) == b"level"
    assert fetched(LevelCache(tmp_path / "new" / "cache"), key, tmp_path) == b"level"
    assert [str(path) for path in (tmp_path / "new/cache").iterdir()] == [cache.get_path(key)]


def test_keys_have_different_files() -> None:
    keys = ("a", "A", "a.b", "a/b", "a%2Eb", "a%2Fb", 999 * "a", 998 * "a" + "b")
    assert len({LevelCache("/cache").get_path(key) for key in keys}) == len(keys)


def test_entries_are_not_written_again(tmp_path: pathlib.Path, level: pathlib.Path) -> None:
    cache = LevelCache(tmp_path / "cache")
    cache.write("key", str(level))
    before = os.stat(cache.get_path("key"))
    cache.write("key", str(level))
    assert os.stat(cache.get_path("key")).st_ino == before.st_ino


def _write_and_check(folder: str, process: int, together: Any, failures: Any) -> None:
    """Threads that write all keys round by round, and read what others have written."""

    def work(thread: int) -> None:
        cache, own = LevelCache(f"{folder}/cache"), pathlib.Path(folder, f"own-{process}-{thread}")
        own.mkdir()
        for round_, key in itertools.product(range(ROUNDS), range(KEYS)):
            name = f"{round_}_{key}"
            content = name.encode() * (SIZE // len(name))
            (own / "level.pk3").write_bytes(content)
            together.wait()
            if fetched(cache, name, own) not in (None, content):
                failures.put(name)
            cache.write(name, str(own / "level.pk3"))
            if fetched(cache, name, own) != content:
                failures.put(name)

    with futures.ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(work, range(THREADS)))  # Raises what they raised.


def test_all_write_the_same_entries_at_the_same_time(tmp_path: pathlib.Path) -> None:
    """Guards from entries that are read half written, and from leftovers."""
    context = multiprocessing.get_context("spawn")
    together, failures = context.Barrier(PROCESSES * THREADS, timeout=PATIENCE_S), context.Queue()
    processes = [
        context.Process(target=_write_and_check, args=(str(tmp_path), i, together, failures))
        for i in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    assert failures.empty()
    assert len(list((tmp_path / "cache").iterdir())) == ROUNDS * KEYS


def _copy_that_fills_the_disk(source: str, target: str) -> None:
    pathlib.Path(target).write_bytes(pathlib.Path(source).read_bytes()[:2])
    raise OSError(errno.ENOSPC, "No space left on device", target)


def test_a_full_cache_is_noted_once_and_still_read(
    tmp_path: pathlib.Path,
    level: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    LevelCache(tmp_path / "cache").write("old", str(level))
    monkeypatch.setattr(shutil, "copyfile", _copy_that_fills_the_disk)
    for _ in range(2):  # Environments of one actor.
        cache = LevelCache(tmp_path / "cache")
        for i in range(3):
            cache.write(f"new{i}", str(level))
    assert len(caplog.records) == 1 and "No space left" in caplog.text
    assert f"Cannot write to the level cache {tmp_path}" in caplog.text
    monkeypatch.undo()
    assert fetched(cache, "old", tmp_path) == b"level"
    assert fetched(cache, "new0", tmp_path) is None
    assert len(list((tmp_path / "cache").iterdir())) == 1  # No partial files.


def test_a_failed_operation_is_not_repeated_for_a_while(
    tmp_path: pathlib.Path, level: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system may take seconds to fail, in every episode."""
    clock = Clock(1000.0)
    monkeypatch.setattr(level_cache.time, "monotonic", clock)
    blocked = tmp_path / "cache"
    blocked.write_text("a file, so that no directory can be made")
    cache = LevelCache(blocked)
    cache.write("key", str(level))
    blocked.unlink()
    cache.write("key", str(level))
    assert not blocked.exists()
    clock.now += 601
    cache.write("key", str(level))
    assert fetched(cache, "key", tmp_path) == b"level"


def test_empty_entries_do_not_count(tmp_path: pathlib.Path) -> None:
    """As left by a crash; the engine would end the process."""
    cache = LevelCache(tmp_path)
    pathlib.Path(cache.get_path("key")).touch()
    assert fetched(cache, "key", tmp_path) is None


def test_any_file_system_of_fsspec(tmp_path: pathlib.Path, level: pathlib.Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    url = f"memory://levels-{tmp_path.name}/deep"
    cache = LevelCache(url)
    assert fetched(cache, "key", tmp_path) is None
    cache.write("key", str(level))
    cache.write("key", str(level))
    assert fetched(LevelCache(f"{url}/"), "key", tmp_path) == b"level"
    system, path = fsspec.core.url_to_fs(url)
    assert len(system.ls(path, detail=False)) == 1


def test_an_unreachable_file_system_is_tolerated(
    tmp_path: pathlib.Path,
    level: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    memory = pytest.importorskip("fsspec.implementations.memory")

    def fail(*_: Any, **__: Any) -> None:
        raise TimeoutError("no answer")

    for name in ("get_file", "put_file", "exists"):
        monkeypatch.setattr(memory.MemoryFileSystem, name, fail)
    cache = LevelCache("memory://away")
    for _ in range(3):
        assert fetched(cache, "key", tmp_path) is None
        cache.write("key", str(level))
    assert len(caplog.records) == 2  # One for reading, one for writing.


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(UserError, match="A level cache needs.*pip install fsspec"):
        LevelCache("/local/levels")


def test_unknown_protocols_are_refused() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(UserError, match="--level_cache_dir=nonsense://levels: "):
        LevelCache("nonsense://levels")
