"""Saving and loading the replay: complete, damaged, interrupted, while it is used."""

import functools
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seed_rl.common.config.replay_config import ReplayConfig
from seed_rl.common.replay import checkpoint
from seed_rl.common.replay import replay as replay_module
from seed_rl.common.replay.checkpoint import (
    ReplayCheckpointError,
    ReplayFiles,
    load_replay,
    save_replay,
)
from seed_rl.common.replay.replay import PrioritizedReplay
from seed_rl.common.replay.specs import FieldSpec
from seed_rl.common.replay.storage import UnrollStorage
from tests.helpers import PROGRAMS
from tests.helpers.replays import stored

SPECS = {"x": FieldSpec((5, 300), np.uint8), "state": FieldSpec((3,), np.float32, time=False)}


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of a few unrolls each, so that there are many."""
    smaller = functools.partial(UnrollStorage, segment_bytes=8000)
    monkeypatch.setattr(replay_module, "UnrollStorage", smaller)


def new_replay(specs: Any = None, seed: int = 0, **options: Any) -> PrioritizedReplay:
    defaults = {"replay_buffer_size": 40, "replay_buffer_min_size": 2, "replay_ratio": 1.0}
    config = ReplayConfig(**{**defaults, "replay_ratio_slack": 1000, **options})
    return PrioritizedReplay(config, specs or SPECS, seed)


def insert(replay: PrioritizedReplay, count: int, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    values = {
        "x": rng.integers(256, size=(5, count, 300)).astype(np.uint8),
        "state": rng.normal(size=(count, 3)).astype(np.float32),
    }
    replay.insert(values, rng.uniform(0, 3, count))


def used_replay() -> PrioritizedReplay:
    """After wrap-around, sampling and changed priorities."""
    replay = new_replay(seed=7)
    insert(replay, 55)
    replay.update_priorities(replay.sample(16).keys, np.linspace(0, 9, 16))
    return replay


def loaded(path: Path, **options: Any) -> PrioritizedReplay:
    """A new replay with what was saved."""
    replay = new_replay(**options)
    load_replay(replay, path)
    return replay


def checkpoint_folders(tmp_path: Path, count: int) -> list[Path]:
    """Of the replay in each of `count` checkpoints."""
    folders = [tmp_path / f"ckpt-{i}" / "replay" for i in range(count)]
    for folder in folders:
        folder.mkdir(parents=True)
    return folders


def content(replay: PrioritizedReplay) -> list[bytes]:
    """Everything in a replay, as bytes."""
    stats = replay.storage.stats()
    keys = np.arange(stats.oldest_key, stats.next_key)
    values, priorities = stored(replay.storage, keys)
    return [a.tobytes() for a in (keys, values["x"], values["state"], priorities)]


def assert_same(one: PrioritizedReplay, other: PrioritizedReplay, keys: np.ndarray) -> None:
    """The same unrolls and priorities of `keys`."""
    (values, priorities), (others, their_priorities) = (
        stored(replay.storage, keys) for replay in (one, other)
    )
    np.testing.assert_array_equal(values["x"], others["x"])
    np.testing.assert_array_equal(priorities, their_priorities)


def assert_goes_on_alike(one: PrioritizedReplay, other: PrioritizedReplay) -> None:
    """The same from now on: content, counts, the next batch."""
    assert content(one) == content(other)
    for name in ("inserted", "sampled", "ratio", "surplus"):
        assert one.limiter.stats[name] == other.limiter.stats[name]
    a, b = one.sample(16), other.sample(16)
    np.testing.assert_array_equal(a.keys, b.keys)
    np.testing.assert_array_equal(a.importance_weights, b.importance_weights)
    np.testing.assert_array_equal(a.unrolls["x"], b.unrolls["x"])


def test_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """Guards a resume: content, priorities, keys, limiter and random numbers."""
    replay = used_replay()
    save_replay(replay, tmp_path)
    resumed = loaded(tmp_path)
    assert_goes_on_alike(replay, resumed)
    for each in (replay, resumed):
        insert(each, 10, seed=5)
    assert_goes_on_alike(replay, resumed)
    assert len(list(tmp_path.glob("segment-*.bin"))) > 5


def test_rates_are_those_since_the_resume(tmp_path: Path) -> None:
    """Guards the first point in TensorBoard from counting a former life's inserts."""
    save_replay(used_replay(), tmp_path)
    stats = loaded(tmp_path).stats()
    assert stats.inserted == 55 and stats.inserts_per_s == stats.samples_per_s == 0


def test_saved_while_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the moment: what is inserted and evicted during the writing changes nothing in it."""
    replay = used_replay()
    before = content(replay)
    write, calls = checkpoint._write, []

    def write_while_in_use(path: Path, parts: Any) -> None:
        calls.append(path)
        insert(replay, 30, seed=len(calls))
        replay.update_priorities(replay.sample(4).keys, np.zeros(4))
        write(path, parts)

    monkeypatch.setattr(checkpoint, "_write", write_while_in_use)
    save_replay(replay, tmp_path)
    assert len(calls) > 3
    assert content(loaded(tmp_path)) == before


def test_empty_replay(tmp_path: Path) -> None:
    """Guards a stop before the first unroll."""
    save_replay(new_replay(), tmp_path)
    resumed = loaded(tmp_path)
    assert len(resumed) == 0
    insert(resumed, 3)
    assert len(resumed) == 3


@pytest.mark.parametrize("size", [7, 40, 90])
def test_another_size(tmp_path: Path, size: int) -> None:
    """Guards a changed `replay_buffer_size`: the newest that fit, and reading in part."""
    replay = used_replay()
    save_replay(replay, tmp_path)
    if size == 7:  # Segments of the others are not even looked at.
        next(iter(sorted(tmp_path.glob("segment-*.bin")))).unlink()
    resumed = loaded(tmp_path, replay_buffer_size=size)
    kept = min(size, 40)
    keys = np.arange(55 - kept, 55)
    assert len(resumed) == kept
    assert_same(replay, resumed, keys)
    insert(resumed, size)
    assert len(resumed) == size


def test_a_smaller_memory_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards a resume on a smaller machine: the newest that fit, and no more."""
    replay = used_replay()
    save_replay(replay, tmp_path)
    whole, fixed = replay.storage.stats().total_bytes, new_replay().storage.stats().total_bytes
    limit = fixed + (whole - fixed) // 2
    # As if what is in it had been assumed to compress better than it does.
    monkeypatch.setattr(replay_module.memory, "limit", lambda *_: limit)
    resumed = loaded(tmp_path)
    assert 10 < len(resumed) < 30
    assert resumed.storage.stats().total_bytes <= limit
    keys = np.arange(55 - len(resumed), 55)
    assert_same(replay, resumed, keys)
    insert(resumed, 50)


def damage_flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def damage_cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


@pytest.mark.parametrize("damage", [damage_flip, damage_cut, Path.unlink])
@pytest.mark.parametrize("file", ["segment-", "priorities", "inserted_at"])
def test_damage_is_noticed(tmp_path: Path, damage: Any, file: str) -> None:
    """Guards against training on garbage, and the replay at hand from a half-done load."""
    save_replay(used_replay(), tmp_path)
    damage(sorted(tmp_path.glob(f"{file}*"))[-1])
    replay = new_replay()
    insert(replay, 3)
    before = content(replay)
    with pytest.raises(ReplayCheckpointError, match="damaged"):
        load_replay(replay, tmp_path)
    assert content(replay) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.pop("state"),
        lambda m: m["state"].pop("limiter"),
        lambda m: m["state"].update(random={"bit_generator": "none"}),
        lambda m: m.update(segments=m["segments"][:-1]),
        lambda m: m.update(segments=m["segments"][1:2] + m["segments"]),
        lambda m: m["segments"].pop(3),
        lambda m: m.update(next_key=m["next_key"] + 1),
        lambda m: m.update(oldest_key=0),
        lambda m: m.update(files={}),
        lambda m: m.update(format=99),
        lambda m: m.update(segments=None),
        lambda m: m["state"]["random"]["state"].update(inc=1 << 300),
    ],
)
def test_wrong_manifest_is_noticed(tmp_path: Path, change: Any) -> None:
    """Guards against manifests of other versions, or that contradict the files."""
    save_replay(used_replay(), tmp_path)
    manifest = json.loads((tmp_path / "replay.json").read_text())
    change(manifest)
    (tmp_path / "replay.json").write_text(json.dumps(manifest))
    replay = new_replay()
    with pytest.raises(ReplayCheckpointError):
        load_replay(replay, tmp_path)
    assert len(replay) == 0


def test_files_that_no_replay_wrote(tmp_path: Path) -> None:
    """Guards resumes from logdirs of others: a segment without a header, brackets without end."""
    save_replay(used_replay(), tmp_path)
    manifest = json.loads((tmp_path / "replay.json").read_text())
    name = manifest["segments"][-1]["file"]
    manifest["files"][name] = {"bytes": 0, "crc32": 0}
    (tmp_path / name).write_bytes(b"")
    for text in (json.dumps(manifest), "[" * 99_999):
        (tmp_path / "replay.json").write_text(text)
        with pytest.raises(ReplayCheckpointError, match="is damaged"):
            load_replay(new_replay(), tmp_path)


def test_other_unrolls_are_noticed(tmp_path: Path) -> None:
    """Guards a resume with another environment or unroll length; the message says what differs."""
    save_replay(used_replay(), tmp_path)
    other = {**SPECS, "x": FieldSpec((6, 300), np.uint8)}
    with pytest.raises(
        ReplayCheckpointError, match=r"unrolls of another format.*\[5, 300\].*\[6, 300\]"
    ):
        load_replay(new_replay(other), tmp_path)


def test_segments_are_shared_with_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the cost of frequent checkpoints, which read and write only what is new, and that a
    shared file is the right one.
    """
    replay = used_replay()
    first, second = checkpoint_folders(tmp_path, 2)
    files = ReplayFiles(replay)
    files.save(first)
    checked: list[int] = []
    facts = checkpoint._facts

    def count(parts: Any) -> Any:
        checked.append(sum(part.nbytes for part in parts))
        return facts(parts)

    monkeypatch.setattr(checkpoint, "_facts", count)
    insert(replay, 2, seed=9)
    files.save(second)
    assert sum(checked) < replay.storage.stats().total_bytes / 8
    nodes = {path.name: path.stat().st_ino for path in first.glob("segment-*")}
    shared = [p for p in second.glob("segment-*") if p.stat().st_ino == nodes.get(p.name)]
    assert 3 < len(shared) < len(list(second.glob("segment-*")))
    shutil.rmtree(first)
    assert_goes_on_alike(replay, loaded(second))


def test_a_damaged_segment_is_not_shared(tmp_path: Path) -> None:
    """Guards the next checkpoint from damage to the one before."""
    replay = used_replay()
    first, second = checkpoint_folders(tmp_path, 2)
    ReplayFiles(replay).save(first)
    damage_flip(sorted(first.glob("segment-*"))[2])
    ReplayFiles(replay).save(second)
    assert content(loaded(second)) == content(replay)


def test_another_runs_segments_are_not_shared(tmp_path: Path) -> None:
    """Guards against taking a file for its name: keys of two runs are the same."""
    one, other = new_replay(), new_replay()
    insert(one, 30, seed=1)
    insert(other, 30, seed=2)
    folders = checkpoint_folders(tmp_path, 2)
    for folder, replay in zip(folders, (one, other), strict=True):
        ReplayFiles(replay).save(folder)
    assert content(loaded(folders[1])) == content(other)


def test_a_full_disk_is_told_before_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the rest of the run's files from a disk filled up by the replay."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 10, 64 << 20))
    with pytest.raises(OSError, match="GB are free; make room"):
        save_replay(used_replay(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_restore_falls_back_to_an_empty_replay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Guards a resume whose replay is damaged, or was not saved: it continues with a warning."""
    replay = new_replay()
    folder = tmp_path / "ckpt-1" / "replay"
    ReplayFiles(replay).restore(folder)
    folder.mkdir(parents=True)
    ReplayFiles(used_replay(), wanted=lambda: False).save(folder)
    assert list(folder.iterdir()) == []
    ReplayFiles(replay).restore(folder)
    assert caplog.text.count("There is no replay in") == 2
    caplog.clear()
    ReplayFiles(used_replay()).save(folder)
    damage_cut(next(folder.glob("segment-*")))
    ReplayFiles(replay).restore(folder)
    assert "Cannot load a saved replay" in caplog.text
    assert "Starting with an empty replay" in caplog.text
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert len(replay) == 0
    insert(replay, 5)
    assert len(replay) == 5


def test_killed_while_saving(tmp_path: Path) -> None:
    """Guards kill -9 in the middle: the half is not taken for a replay, the one before is whole."""
    command = [sys.executable, PROGRAMS / "replay_victim.py", tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "writing\n"
        process.send_signal(signal.SIGKILL)
    specs = FieldSpec((1 << 20,), np.uint8, time=False)
    config = ReplayConfig(replay_buffer_size=40, replay_buffer_min_size=2, replay_ratio=0.0)
    replay = PrioritizedReplay(config, specs)
    assert list((tmp_path / "half").iterdir())
    with pytest.raises(ReplayCheckpointError):
        load_replay(replay, tmp_path / "half")
    load_replay(replay, tmp_path / "whole")
    expected = np.random.default_rng(0).integers(256, size=(20, 1 << 20)).astype(np.uint8)
    np.testing.assert_array_equal(stored(replay.storage, np.arange(20))[0], expected)
