"""`--wandb_project`, with the real package in offline mode, in which it uses no network."""

from __future__ import annotations

import os
import pathlib
import re
import struct
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from seed_rl.common.callbacks import Report, Run
from seed_rl.common.errors import UserError
from seed_rl.common.monitoring.wandb_sync import WandbSync
from seed_rl.common.run_files.progress import ProgressWriter
from tests.helpers.system_helpers import Program, Site, site
from tests.helpers.waiting import wait_until

_HEADER, _BLOCK = 7, 32768


def records(path: pathlib.Path) -> list[Any]:
    """What W&B kept for a later `wandb sync`: protos in LevelDB's log format."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, found, part, at = path.read_bytes(), [], b"", _HEADER
    while at + _HEADER <= len(data):
        if _BLOCK - at % _BLOCK < _HEADER:  # Too little for another header: padding.
            at += _BLOCK - at % _BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        part += data[at + _HEADER : at + _HEADER + length]
        at += _HEADER + length
        if kind in (1, 4):  # Whole, or the last part.
            found.append(Record.FromString(part))
            part = b""
    return found


@pytest.fixture
def place(tmp_path: pathlib.Path, socket_address: str, monkeypatch: Any) -> Iterator[Site]:
    monkeypatch.setenv("HOME", str(tmp_path))
    with site(tmp_path, socket_address, "--env_name=CartPole-v1") as place:
        yield place


def learner(place: Site) -> Program:
    flags = ("--total_environment_frames=1280", "--wandb_project=mazes", "--nosave_model")
    return place.learner(*flags)


@pytest.mark.nightly
def test_a_run_and_its_resumption_are_one_run_of_wandb(place: Site, monkeypatch: Any) -> None:
    """Guards project, name, options and curves of what W&B would send."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    place.actor(0, "--env_batch_size=4")
    program = learner(place)
    assert program.wait() == 0, program.text()
    logdir = place.logdir
    (first,) = (logdir / "wandb").glob("offline-run-*")
    run_id = check(first, {"charts/loss", "charts/frames_per_s", "train/losses/policy"})

    sync = WandbSync("mazes")
    sync.run = Run(logdir, {"env_name": "CartPole-v1", "logdir": str(logdir)}, lambda folder: None)
    sync.on_start()
    curves = {"charts/loss": 1.0, "replay/priorities": np.arange(100.0)}
    sync.on_report(Report(ProgressWriter(logdir, 10_000, 2560).last, curves, (), None, False))
    sync.on_end("done")
    (second,) = set((logdir / "wandb").glob("offline-run-*")) - {first}
    assert check(second, {"charts/loss", "frames", "replay/priorities/_type"}) == run_id
    # TensorBoard looks into all folders of the logdir: it must find nothing twice.
    assert not list((logdir / "wandb").rglob("*tfevents*"))


def check(folder: pathlib.Path, curves: set[str]) -> str:
    """Looks at what W&B keeps of one life; returns the id of the run."""
    (path,) = folder.glob("*.wandb")
    # W&B writes in a process of its own, which lives as long as the one that began the run.
    wait_until(lambda: curves <= names(records(path)))
    kept = records(path)
    (run,) = {(r.run.project, r.run.display_name, r.run.run_id) for r in kept if r.run.run_id}
    assert run[:2] == ("mazes", "run")
    options = {item.key: item.value_json for r in kept for item in r.run.config.update}
    assert options["env_name"] == '"CartPole-v1"' and "logdir" not in options
    return str(run[2])


def names(kept: list[Any]) -> set[str]:
    """Of the curves that have a point."""
    return {item.key or "/".join(item.nested_key) for r in kept for item in r.history.item}


@pytest.mark.nightly
def test_nobody_logged_in_is_one_line(place: Site, monkeypatch: Any) -> None:
    """Guards against a traceback, and a run that trains without the curves that were asked for."""
    monkeypatch.setenv("WANDB_MODE", "online")
    program = learner(place)
    assert program.wait() == 2, program.text()
    (line,) = program.errors()
    assert re.search("--wandb_project=mazes: .*WANDB_MODE=offline", line)
    assert "Traceback" not in program.text()


def test_a_missing_package_names_the_command(tmp_path: Any, monkeypatch: Any) -> None:
    """Guards the message to users without the extra."""
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match="--wandb_project needs .* -m pip install wandb"):
        sync = WandbSync("mazes")
        sync.run = Run(tmp_path, {}, lambda folder: None)
        sync.on_start()
    assert not os.listdir(tmp_path)
