"""The load of `benchmarks.load`: its recordings follow the episode protocol, and it runs."""

import json
import resource
import struct
import sys
import types
from typing import Any

import gymnasium
import numpy as np
import pytest

from benchmarks import load, load_actors
from benchmarks.load_learner import LOADS
from benchmarks.workloads import WORKLOADS
from seed_rl.common.acting.batched_env import BatchedEnvironment
from seed_rl.common.config.options import from_values
from seed_rl.common.types import EnvOutput
from seed_rl.grpc import wire
from seed_rl.grpc.structures import TensorSpec
from tests.helpers import run

ENVS, CALLS = 3, 40


def spec(dtype, *shape):
    return TensorSpec(dtype, (None, *shape))


@pytest.fixture
def recorded(tmp_path):
    """(where ids are, where run ids are, calls) of a recording of three CartPoles."""
    report = EnvOutput(
        spec("float32"), spec("bool"), spec("float32", 4), spec("bool"), spec("int32")
    )
    inference = types.SimpleNamespace(
        arguments=(spec("int32"), spec("int64"), report, spec("float32"), spec("float32"))
    )
    client: Any = types.SimpleNamespace(functions={"other": None, "inference": inference})
    env = BatchedEnvironment(lambda *_: gymnasium.make("CartPole-v1"), ENVS, 0)
    file = tmp_path / "recording"
    size = load_actors.record(client, env, CALLS, 1, file)
    env.close()
    data = file.read_bytes()
    envs, env_ids_at, run_ids_at, count = struct.unpack_from("<4I", data)
    assert envs == ENVS
    calls, position = [], 16
    for _ in range(count):
        (length,) = struct.unpack_from("<I", data, position)
        calls.append(bytearray(data[position + 4 : position + 4 + length]))
        position += 4 + length
    assert position == len(data)
    assert {len(call) for call in calls} == {size}
    return env_ids_at, run_ids_at, calls


@pytest.mark.parametrize("name", [*WORKLOADS, *LOADS])
def test_workloads_count_frames_as_their_learners_do(name):
    """Guards frames/s trained on beside frames/s served, which came from different counts."""
    workload = {**WORKLOADS, **LOADS}[name]
    config = from_values(workload.environments().config, workload.env)
    assert config.num_action_repeats == workload.frames_per_transition


def test_each_actor_has_its_own_ids(recorded):
    """Guards the places that each actor overwrites in every call."""
    env_ids_at, run_ids_at, calls = recorded
    for call in calls:
        struct.pack_into(f"<{ENVS}i", call, env_ids_at, 7, 8, 9)
        struct.pack_into(f"<{ENVS}q", call, run_ids_at, *([2**62 + 1] * ENVS))
        frame = wire.decode(bytes(call))
        assert (frame.kind, frame.code) == (wire.KIND_CALL, 1)
        assert frame.tensors[0].tolist() == [7, 8, 9]
        assert frame.tensors[1].tolist() == [2**62 + 1] * ENVS


def test_the_circle_follows_the_episode_protocol(recorded):
    """Guards what learners rely on: the first call, the last, and step counts in between."""
    calls = [wire.decode(bytes(call)).tensors for call in recorded[2]]
    assert len(calls) == CALLS + 1
    assert all(np.isnan(tensors[8]).all() for tensors in calls)  # No episode failed.
    first, *played, last = (EnvOutput(*tensors[2:7]) for tensors in calls)
    assert not first.done.any() and not first.reward.any() and not first.episode_step.any()
    assert last.done.all() and last.abandoned.all()
    assert not last.reward.any() and not last.episode_step.any()
    np.testing.assert_array_equal(last.observation, first.observation)
    assert any(step.done.any() for step in played)
    before = first.episode_step
    for step in played:
        np.testing.assert_array_equal(step.episode_step, np.where(step.done, 0, before + 1))
        before = step.episode_step


def test_too_few_descriptors(monkeypatch):
    """Guards the message: before anything starts, and with the number."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    with pytest.raises(SystemExit, match="2000 actors need 8256 open files, .* limit is 4096"):
        load.needs_descriptors(2000)


def test_descriptors_are_raised(monkeypatch):
    """Guards that the usual soft limit of 1,024 needs no action by the user."""
    limits = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 65536))
    monkeypatch.setattr(resource, "setrlimit", lambda _, values: limits.append(values))
    load.needs_descriptors(2000)
    load.needs_descriptors(100)
    assert limits == [(8256, 65536)]


@pytest.mark.nightly
def test_a_small_load(repository, tmp_path):
    """20 actors of 2 environments play with a real learner, lose it and come back: no errors."""
    file = tmp_path / "results.json"
    command = [sys.executable, "-m", "benchmarks.load", f"--json={file}", "--actors=20"]
    options = ["--envs_per_actor=2", "--seconds=2", "--warmup=0.5"]
    run(*command, *options, code=0, cwd=repository, timeout=300)
    results = json.loads(file.read_text())
    assert (results["errors"], results["lost"], results["problems"]) == (0, 0, [])
    assert results["open_streams"] == 20
    assert results["calls_per_s"] > 0
    for name in ("connect", "open", "storm"):
        assert results["phases"][name]["missing"] == 0
    assert results["storm_first_reply_ms"][2] > 0
