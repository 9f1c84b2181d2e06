"""The copy of a logdir in a bucket: what the next learner finds there, whenever the last one died.

Each test runs on file://, and on Google Cloud Storage's own client (gcsfs) with an emulator of the
service where both are installed; those of one moment on memory://.
"""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent import futures

import pytest

from seed_rl.cluster import mirror, remote_files
from seed_rl.cluster.mirror import OWNER, DisplacedError, Mirror
from seed_rl.cluster.remote_files import RemoteFiles
from seed_rl.common.checkpoints import manifest
from seed_rl.common.errors import UserError
from seed_rl.common.run_files import checkpoint_list
from tests.helpers import REPOSITORY
from tests.helpers.clock import Clock
from tests.helpers.google_services import storage
from tests.helpers.saved_logdirs import contents, save, save_replay
from tests.helpers.waiting import PATIENCE_S, wait_until


@pytest.fixture(scope="module")
def emulator() -> Iterator[str]:
    """Google Cloud Storage on this machine; yields a bucket."""
    with storage() as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", address)
        yield "gs://runs"


@pytest.fixture(params=["file", "gs"])
def url(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> str:
    name = f"pong-{uuid.uuid4().hex}"
    if request.param == "file":
        return f"file://{tmp_path}/bucket/{name}"
    return f"{request.getfixturevalue('emulator')}/{name}"


@pytest.fixture
def open_mirror(url: str, tmp_path: pathlib.Path) -> Callable[[str], Mirror]:
    """Opens a mirror of the URL as the learner of a new machine does: claims and restores."""

    def open_mirror(machine: str) -> Mirror:
        (tmp_path / machine).mkdir()
        mirror = Mirror(RemoteFiles(url), tmp_path / machine)
        mirror.claim()
        mirror.restore()
        return mirror

    return open_mirror


def test_a_run_comes_back_on_another_machine(open_mirror: Callable[[str], Mirror]) -> None:
    first = open_mirror("a")
    save(first.logdir, replay=True)
    newest = save(first.logdir, replay=True)
    best = save(first.logdir / "best", keep=1)
    (first.logdir / "summaries").mkdir()
    (first.logdir / "summaries" / "events.1").write_bytes(b"event")
    first.copy()
    first.release()

    second = open_mirror("b")

    expected = contents(first.logdir)
    restored = contents(second.logdir)
    # All files but the older checkpoint, which the learner does not need.
    assert restored == {
        name: data
        for name, data in expected.items()
        if not name.startswith("checkpoints/") or name.startswith(f"checkpoints/{newest.name}/")
    }
    assert second.newest() == f"checkpoints/{newest.name}"
    assert f"best/checkpoints/{best.name}/MANIFEST.json" in restored


def test_a_connection_that_falls_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards copying from stopping for good: gcsfs itself waits for ever."""
    pytest.importorskip("gcsfs")
    monkeypatch.setattr(remote_files, "_SILENT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server, futures.ThreadPoolExecutor() as pool:
        server.settimeout(PATIENCE_S)
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{server.getsockname()[1]}")
        found = pool.submit(RemoteFiles("gs://runs/x").read, OWNER)
        silent, _ = server.accept()
        with silent, server.accept()[0] as second:
            second.recv(65536)
            second.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            assert found.result() is None


def test_the_copy_follows_what_is_added_changed_and_removed(
    open_mirror: Callable[[str], Mirror], url: str
) -> None:
    """Also in best/; a round during a save copies nothing of what is being written."""
    mirror = open_mirror("a")
    for _ in range(4):
        save(mirror.logdir, keep=2)
        save(mirror.logdir / "best", keep=1)
        written = [mirror.logdir / "best/checkpoints/.saving-1-x", mirror.logdir / ".model.saving"]
        for folder in written:
            folder.mkdir()
            (folder / "variables.index").write_text("half")
        mirror.copy()
        for folder in written:
            shutil.rmtree(folder)
    (mirror.logdir / "best/returns.csv").unlink()
    mirror.copy()
    found = {name: RemoteFiles(url).read(name) for name in RemoteFiles(url).names()}
    del found[OWNER]
    assert found == contents(mirror.logdir)


def test_extra_files_saved_after_the_checkpoint_are_copied_later(
    open_mirror: Callable[[str], Mirror],
) -> None:
    mirror = open_mirror("a")
    checkpoint = save(mirror.logdir)
    mirror.copy()
    save_replay(checkpoint)
    mirror.copy()
    mirror.release()
    restored = open_mirror("b").logdir / "checkpoints" / checkpoint.name
    assert contents(restored) == contents(checkpoint)


@pytest.mark.parametrize("lost", ["MANIFEST.json", "variables.index", "replay.complete"])
def test_what_was_not_copied_completely_is_not_restored(
    open_mirror: Callable[[str], Mirror], url: str, lost: str
) -> None:
    mirror = open_mirror("a")
    older = save(mirror.logdir, replay=True)
    newest = save(mirror.logdir, replay=True)
    mirror.copy()
    mirror.release()
    RemoteFiles(url).remove(f"checkpoints/{newest.name}/{lost}")

    restored = open_mirror("b").logdir / "checkpoints"

    if lost == "replay.complete":  # Then the older one's is the newest that is complete.
        assert {p.name for p in restored.iterdir()} == {older.name, newest.name}
        assert not (restored / newest.name / "replay").exists()
        assert contents(restored / older.name) == contents(older)
    else:
        assert [p.name for p in restored.iterdir()] == [older.name]
    for entry in checkpoint_list.list_checkpoints(restored):
        manifest.verify(entry.path)


def test_damaged_checkpoints_are_skipped_and_all_damaged_is_an_error(
    open_mirror: Callable[[str], Mirror], url: str
) -> None:
    mirror = open_mirror("a")
    older = save(mirror.logdir)
    newest = save(mirror.logdir)
    mirror.copy()
    mirror.release()
    remote = RemoteFiles(url)
    remote.write(f"checkpoints/{newest.name}/variables.index", b"damaged")
    second = open_mirror("b")
    assert [p.name for p in (second.logdir / "checkpoints").iterdir()] == [older.name]
    second.release()
    remote.write(f"checkpoints/{older.name}/variables.index", b"damaged")
    with pytest.raises(UserError, match=r"Every checkpoint in .* is damaged"):
        open_mirror("c")


def test_leftovers_under_the_name_of_a_new_checkpoint_do_no_harm(
    open_mirror: Callable[[str], Mirror], url: str
) -> None:
    # A learner died between a replay's files; the next one saves a checkpoint of the same name.
    remote = RemoteFiles(url)
    name = "checkpoints/ckpt-000001-step-000000000100"
    remote.write(f"{name}/replay/replay.json", b"old")
    remote.write(f"{name}/replay.complete", b"complete\n")
    mirror = open_mirror("a")
    save(mirror.logdir)
    mirror.copy()
    mirror.release()
    restored = open_mirror("b").logdir
    assert contents(restored / name) == contents(mirror.logdir / name)


def test_old_copies_stay_until_the_new_learner_has_saved(
    open_mirror: Callable[[str], Mirror], url: str
) -> None:
    first = open_mirror("a")
    save(first.logdir)
    save(first.logdir)
    first.copy()
    first.release()
    second = open_mirror("b")
    second.copy()  # Has one checkpoint, restored; two are in the bucket.
    manifests = [n for n in RemoteFiles(url).names("checkpoints") if n.endswith("MANIFEST.json")]
    assert len(manifests) == 2


def test_a_second_learner_is_refused_while_the_first_is_alive(
    open_mirror: Callable[[str], Mirror], url: str, tmp_path: pathlib.Path
) -> None:
    first = open_mirror("a")
    save(first.logdir)
    second = Mirror(RemoteFiles(url), tmp_path, sleep=lambda _: first.copy())
    with pytest.raises(DisplacedError, match="Another learner is writing to .*another --logdir"):
        second.claim()


def test_the_next_learner_takes_over_from_a_dead_one_which_then_must_not_write(
    open_mirror: Callable[[str], Mirror], url: str, tmp_path: pathlib.Path
) -> None:
    first = open_mirror("a")
    clock = Clock()
    second = Mirror(RemoteFiles(url), tmp_path, sleep=clock.sleep, clock=clock)
    second.claim()
    assert clock.now >= 60  # It looked for signs of life.
    save(first.logdir)
    with pytest.raises(DisplacedError, match="Another learner is now writing to"):
        first.copy()
    assert RemoteFiles(url).names("checkpoints") == set()


def test_nobody_waits_for_a_learner_that_has_been_silent_for_long(
    open_mirror: Callable[[str], Mirror],
    url: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when a node is lost and its replacement comes minutes later."""
    open_mirror("a")
    remote = RemoteFiles(url)
    monkeypatch.setattr(mirror, "_LEASE_S", 0.5)
    wait_until(lambda: remote.age_s(OWNER) >= 0.5)

    def sleep(seconds: float) -> None:
        raise AssertionError("it waits")

    Mirror(remote, tmp_path, sleep=sleep).claim()
    assert remote.names() == {OWNER}


def test_a_storage_without_a_clock(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole lease is then waited for."""
    remote = RemoteFiles(url)
    remote.write(OWNER, b"{}")

    def modified(path: str) -> None:
        raise NotImplementedError

    monkeypatch.setattr(remote._system, "modified", modified)
    assert remote.age_s(OWNER) == 0.0 and remote.names() == {OWNER}


def test_a_place_that_cannot_be_written_is_one_message(tmp_path: pathlib.Path) -> None:
    (tmp_path / "bucket").write_text("a file, not a folder")
    mirror = Mirror(RemoteFiles(f"file://{tmp_path}/bucket/run"), tmp_path)
    with pytest.raises(UserError, match="Cannot (read|write to) --logdir=.*bucket/run"):
        mirror.claim()


def test_a_bucket_that_does_not_exist_is_one_message(emulator: str, tmp_path: pathlib.Path) -> None:
    mirror = Mirror(RemoteFiles("gs://no-such-bucket/run"), tmp_path)
    with pytest.raises(UserError, match="--logdir=gs://no-such-bucket/run.*bucket exists"):
        mirror.claim()


@pytest.mark.parametrize(
    ("bad", "message"), [("gopher://x/y", "gopher"), ("sftp://host/run", "--logdir=sftp")]
)
def test_unknown_file_systems_are_named(bad: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        RemoteFiles(bad)


class _Ends(RemoteFiles):
    """A bucket whose user dies before the change number `left`."""

    left = 10**6

    def _count(self) -> None:
        if not self.left:
            raise InterruptedError
        self.left -= 1

    def write(self, name: str, content: bytes) -> None:
        self._count()
        super().write(name, content)

    def upload(self, local: pathlib.Path, name: str) -> None:
        self._count()
        super().upload(local, name)

    def remove(self, name: str) -> None:
        self._count()
        super().remove(name)


class _During(RemoteFiles):
    """A bucket, and what happens before each upload: `event(local, name)`."""

    event: Callable[[pathlib.Path, str], None] = staticmethod(lambda local, name: None)

    def upload(self, local: pathlib.Path, name: str) -> None:
        self.event(local, name)
        super().upload(local, name)


def test_what_a_learner_writes_during_an_upload_comes_with_the_next_round(
    tmp_path: pathlib.Path,
) -> None:
    """Guards uploads whose client has measured the file, and what best.json says."""
    remote = _During(f"memory://grows-{uuid.uuid4().hex}")
    mirror = Mirror(remote, tmp_path)
    save(tmp_path)
    best = tmp_path / "best" / "best.json"

    def write(local: pathlib.Path, name: str) -> None:
        if name == "returns.csv":
            before = local.read_bytes()
            with (tmp_path / name).open("a") as returns:
                returns.write("2\n")
            assert local.read_bytes() == before
            best.write_text(save(best.parent, keep=1).name)

    remote.event = write
    mirror.copy()
    assert remote.names("best") == set()
    remote.event = lambda local, name: None
    mirror.copy()
    assert remote.read("returns.csv") == (tmp_path / "returns.csv").read_bytes()
    assert f"best/checkpoints/{best.read_text()}/MANIFEST.json" in remote.names()
    assert remote.read("best/best.json") == best.read_bytes()


def test_one_file_that_cannot_be_copied_holds_up_no_other(tmp_path: pathlib.Path) -> None:
    remote = _During(f"memory://fails-{uuid.uuid4().hex}")
    mirror = Mirror(remote, tmp_path)
    save(tmp_path)
    mirror.copy()
    newest = save(tmp_path, keep=1)
    (tmp_path / "summary").write_text("later than returns.csv")

    def fail(local: pathlib.Path, name: str) -> None:
        if name == "returns.csv":
            raise OSError(name)

    remote.event = fail
    with pytest.raises(OSError, match=r"returns\.csv"):
        mirror.copy()
    assert remote.read("summary") is not None
    assert {name.split("/")[1] for name in remote.names("checkpoints")} == {newest.name}


@pytest.mark.parametrize("replay_later", [False, True])
def test_after_any_number_of_changes_what_is_marked_complete_is_complete(
    tmp_path: pathlib.Path, replay_later: bool
) -> None:
    """Guards the order of uploads and removals, for all who read the bucket.

    Also where a displaced learner's mark of a replay arrives late, before the replay is copied.
    """
    for end in range(1000):
        remote = _Ends(f"memory://end-{uuid.uuid4().hex}")
        mirror = Mirror(remote, tmp_path / str(end))
        mirror.claim()
        for _ in range(2):
            save(mirror.logdir, keep=1, replay=True)
            mirror.copy()
        written = {*contents(mirror.logdir / "checkpoints")}
        newest = save(mirror.logdir, keep=1, replay=not replay_later)
        if replay_later:
            mirror.copy()
            remote.write(f"checkpoints/{newest.name}/replay.complete", b"complete\n")
            save_replay(newest)
        written |= {*contents(mirror.logdir / "checkpoints")}
        remote.left = end
        try:
            mirror.copy()
            break
        except InterruptedError:
            pass
        found = {name.removeprefix("checkpoints/") for name in remote.names("checkpoints")}
        folders = {name.split("/")[0] for name in written}
        assert any(f"{folder}/MANIFEST.json" in found for folder in folders)
        for folder in folders:
            files = {n for n in written if n.startswith(f"{folder}/")}
            replay = {n for n in files if "/replay/" in n}
            if f"{folder}/MANIFEST.json" in found:
                assert files - replay <= found
            # The late mark alone is there before the first of this learner's files.
            marked = f"{folder}/replay.complete" in found
            if marked and (replay & found or not replay_later):
                assert replay <= found
    assert end > 3  # The last round was not interrupted.


def test_a_learner_killed_at_any_moment_leaves_a_complete_checkpoint(
    tmp_path: pathlib.Path,
) -> None:
    # file:// is the hardest case: a killed upload leaves half a file, where a bucket has none.
    url = f"file://{tmp_path}/bucket/run"
    moments = random.Random(0)
    saved = 0
    for life in range(6):
        logdir = tmp_path / f"machine{life}"
        logdir.mkdir()
        command = [sys.executable, "-m", "tests.helpers.programs.mirror_victim", str(logdir), url]
        victim = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
        assert victim.stdout is not None
        for _ in range(2):
            victim.stdout.readline()  # This many rounds are complete.
        time.sleep(moments.uniform(0, 0.05))
        victim.kill()
        victim.wait()
        victim.stdout.close()

        RemoteFiles(url).write(OWNER, b'{"owner": null}')  # Instead of waiting for heartbeats.
        restored = tmp_path / f"restored{life}"
        restored.mkdir()
        Mirror(RemoteFiles(url), restored).restore()
        [entry] = checkpoint_list.list_checkpoints(restored / "checkpoints")
        manifest.verify(entry.path)
        assert entry.serial >= saved + 2
        saved = entry.serial


def test_names_in_the_bucket_cannot_reach_outside_the_logdir(tmp_path: pathlib.Path) -> None:
    """Guards other files of the machine: `directory / "/name"` is /name."""
    remote = RemoteFiles(f"memory://pong-{uuid.uuid4().hex}")
    remote.write("config.json", b"{}")
    remote.write(f"/{tmp_path}/other".replace("//", "/"), b"hostile")
    sealed = f"{tmp_path}/sealed"
    remote.write(f"checkpoints/ckpt-1-step-1/{sealed}", b"hostile")
    names = json.dumps({"files": {sealed: {"bytes": 7, "sha256": ""}}})
    remote.write("checkpoints/ckpt-1-step-1/MANIFEST.json", names.encode())
    logdir = tmp_path / "logdir"
    logdir.mkdir()
    with pytest.raises(UserError, match="damaged"):
        Mirror(remote, logdir).restore()
    remote.remove("checkpoints/ckpt-1-step-1/MANIFEST.json")
    Mirror(remote, logdir).restore()
    assert contents(logdir) == {"config.json": b"{}"}
    assert {path.name for path in tmp_path.iterdir()} == {"logdir"}


def test_odd_objects_of_the_bucket_are_left_out(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Guards the resume: buckets take names, and programs manifests, that no file system does."""
    remote = RemoteFiles(f"memory://pong-{uuid.uuid4().hex}")
    remote.write("logs/x", b"log")
    nested = b'{"files": ' + b"[" * 99_999
    remote.write("checkpoints/ckpt-1-step-1/MANIFEST.json", nested)
    remote.write(OWNER, b"[" * 99_999)
    odd = (".", "logs", "a/./b", "a\0", "a" * 256, "\udc80" * 99, "folder/", "checkpoints")
    find, root = remote._system.find, remote._root
    more = [f"{root}/{name}" for name in odd]
    monkeypatch.setattr(remote._system, "find", lambda folder: [*find(folder), *more])
    assert remote.names() == {"logs/x", "checkpoints/ckpt-1-step-1/MANIFEST.json", OWNER}
    assert len(caplog.records) == len(remote._left_out) == len(odd)
    mirror = Mirror(remote, tmp_path, sleep=lambda _: None, clock=itertools.count(0, 99).__next__)
    mirror.claim()
    with pytest.raises(UserError, match="damaged"):
        mirror.restore()
    remote.remove("checkpoints/ckpt-1-step-1/MANIFEST.json")
    mirror.restore()
    assert contents(tmp_path) == {"logs/x": b"log"}
    assert len(caplog.records) <= len(odd) + 3


def test_only_regular_files_are_copied(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Guards a copy that waits for a pipe's writer forever, and files elsewhere."""
    remote = RemoteFiles(f"memory://pong-{uuid.uuid4().hex}")
    mirror = Mirror(remote, tmp_path)
    (tmp_path / "config.json").write_text("{}")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    mirror.copy()
    mirror.copy()
    assert remote.names() == {"config.json", OWNER}
    assert sorted(record.args[0].name for record in caplog.records) == ["link", "pipe"]
