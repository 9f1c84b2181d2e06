"""One real learner that is abused, killed, and continues from its last intact checkpoint.

The tests of this file share the learner and its actors, and run in their order.
"""

from __future__ import annotations

import operator
import pathlib
import re
import resource
import signal
import threading

import numpy as np
import pytest

from seed_rl.common.checkpoints import manifest
from seed_rl.common.run_files import checkpoint_list, returns_log
from seed_rl.common.types import EnvOutput
from seed_rl.grpc.errors import CallError, ClientError, StatusCode
from seed_rl.grpc.numpy_client import Client
from tests.helpers.system_helpers import LIFE_STEP, site
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.slow

ACTORS, ENVS_PER_ACTOR = 2, 2
SPARE = np.arange(ACTORS * ENVS_PER_ACTOR, 8, dtype=np.int32)  # Environments of no actor.
MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def place(tmp_path_factory, shared_address):
    environments = (LIFE_STEP, "--num_envs=8", f"--env_batch_size={ENVS_PER_ACTOR}")
    with site(tmp_path_factory.mktemp("learner"), shared_address, *environments) as place:
        yield place


def start_learner(place, batch_size=4):
    return place.learner(
        f"--batch_size={batch_size}",
        "--unroll_length=5",
        "--save_checkpoint_secs=1",
        "--log_period_secs=1",
    )


@pytest.fixture(scope="module")
def actors(place):
    return [place.actor(task) for task in range(ACTORS)]


@pytest.fixture(scope="module")
def learner(place, actors):
    learner = start_learner(place)
    place.trains_on(learner)
    return learner


def saved(place):
    """Names of the checkpoints, oldest first."""
    return [
        entry.path.name for entry in checkpoint_list.list_checkpoints(place.logdir / "checkpoints")
    ]


def arguments(env_ids, run_id, **changes):
    n = len(env_ids)
    observation = changes.get("observation", np.zeros([n, 4], np.float32))
    reward = changes.get("reward", np.zeros(n, np.float32))
    false, steps = np.zeros(n, np.bool_), np.zeros(n, np.int32)
    run_ids = np.full(n, run_id, np.int64)
    env_outputs = EnvOutput(reward, false, observation, false, steps)
    return np.asarray(env_ids, np.int32), run_ids, env_outputs, *[np.zeros(n, np.float32)] * 2


def come_and_go(address, times, first_run_id):
    """This many lives of the spare environments; every other one ends during a call."""
    for i in range(times):
        with Client(address) as client:
            args = arguments(SPARE, first_run_id + i)
            for _ in range(3):
                assert client.inference(*args).shape == SPARE.shape
            if i % 2:
                thread = threading.Thread(target=_call_until_closed, args=(client, args))
                thread.start()
                client.close()
                thread.join()


def _call_until_closed(client, args):
    try:
        while True:
            client.inference(*args)
    except ClientError:
        pass


def test_memory_when_actors_come_and_go(place, learner):
    """Guards that a connection leaves nothing behind, nor a call whose caller is gone."""
    come_and_go(place.address, 100, 1000)
    before = learner.resident_bytes()
    come_and_go(place.address, 200, 2000)
    grown = learner.resident_bytes() - before
    with Client(place.address) as client:
        wait_until(lambda: client.stats()["connections"] <= ACTORS + 1)
    # Training itself moves it by some MiB; 200 connections of 100 KiB would show.
    assert grown < 20 * MEBIBYTE, f"{grown / MEBIBYTE:.1f} MiB"
    place.trains_on(learner, 100)


def test_calls_of_strangers(place, learner, actors):
    """Each wrong call gets an error; other clients are not affected."""
    with Client(place.address) as client:
        wrong = {
            "Environment id 8 ": arguments([8], 1),
            "Environment id -1 ": arguments([-1], 1),
            "Duplicate": arguments([4, 4], 1),
            "shape": arguments(SPARE, 1, observation=np.zeros([4, 5], np.float32)),
            "float64": arguments(SPARE, 1, observation=np.zeros([4, 4], np.float64)),
        }
        for message, args in wrong.items():
            with pytest.raises(CallError, match=message) as error:
                client.inference(*args)
            assert error.value.code == StatusCode.INVALID_ARGUMENT
            assert "\n" not in error.value.message and "{{" not in error.value.message
        assert client.inference(*arguments(SPARE, 5)).shape == SPARE.shape
        assert client.inference(*arguments(SPARE, 6)).shape == SPARE.shape
        with pytest.raises(CallError, match="newer actor") as error:
            client.inference(*arguments(SPARE, 5))
        assert error.value.code == StatusCode.FAILED_PRECONDITION
    place.trains_on(learner, 100)
    assert [actor.code for actor in actors] == [None] * ACTORS


@pytest.mark.parametrize("room", [4096, 0])
def test_a_full_disk(place, learner, room):
    """No room for a checkpoint, or for anything: warnings; training continues; old ones stay."""
    unlimited = resource.RLIM_INFINITY
    _, hard = resource.prlimit(learner.pid, resource.RLIMIT_FSIZE)
    failures = learner.text().count("The run continues")
    wait_until(lambda: len(saved(place)) >= 2, running=learner)
    resource.prlimit(learner.pid, resource.RLIMIT_FSIZE, (room, hard))
    wait_until(lambda: learner.text().count("The run continues") >= failures + 2, running=learner)
    before = saved(place)
    with Client(place.address) as client:
        calls = client.stats()["functions"]["inference"]["calls"]
        wait_until(lambda: client.stats()["functions"]["inference"]["calls"] > calls + 100)
    assert saved(place) == before and before
    for entry in checkpoint_list.list_checkpoints(place.logdir / "checkpoints"):
        manifest.verify(entry.path)
    resource.prlimit(learner.pid, resource.RLIMIT_FSIZE, (unlimited, hard))
    wait_until(lambda: saved(place)[-1] != before[-1], running=learner)
    place.trains_on(learner, 100)
    assert not list((place.logdir / "checkpoints").glob(".saving-*-*"))[1:], "rubbish is left"
    assert "Traceback" not in learner.text()


def test_kill_9_of_the_learner(place, learner, actors):
    """The next one skips a truncated checkpoint; actors reconnect to it."""
    wait_until(lambda: len(saved(place)) >= 2, running=learner)
    learner.kill()
    *_, whole, newest = checkpoint_list.list_checkpoints(place.logdir / "checkpoints")
    data = next(newest.path.glob("variables.data-*"))
    data.write_bytes(data.read_bytes()[: data.stat().st_size // 2])
    wait_until(lambda: all("no learner at" in actor.text() for actor in actors))

    def connections():
        return [actor.text().count(f", learner at {place.address}") for actor in actors]

    before = connections()
    # With other batches the frames must not decrease, though the training steps continue.
    learner = start_learner(place, batch_size=2)
    place.trains_on(learner)
    text = learner.text()
    assert "Skipping a damaged checkpoint" in text
    resumed = re.search(r"Resuming after (\d+) environment frames", text)
    assert resumed is not None and int(resumed[1]) == whole.step
    assert place.frames(learner) > whole.step
    assert newest.path.with_name(newest.path.name + ".damaged").is_dir()
    assert [actor.code for actor in actors] == [None] * ACTORS
    wait_until(lambda: all(map(operator.gt, connections(), before)))
    rows = returns_log.read(place.logdir / "returns.csv")
    frames = [row.frames for row in rows]
    assert frames == sorted(frames), "frames go back in returns.csv"

    # SIGTERM saves all that was learned; remaining actors exit with 0 when stopped.
    learner.send(signal.SIGTERM)
    assert learner.wait() == 0, learner.text()
    last = checkpoint_list.list_checkpoints(place.logdir / "checkpoints")[-1]
    ended = re.search(r"Ended after (\d+) environment frames", learner.text())
    assert ended is not None and int(ended[1]) == last.step > whole.step
    manifest.verify(last.path)
    assert place.progress().phase == "stopped"
    assert pathlib.Path(place.logdir / "saved_model" / "saved_model.pb").is_file()
    for actor in actors:
        actor.send(signal.SIGTERM)
    assert [actor.wait() for actor in actors] == [0] * ACTORS
    for program in (learner, *actors):
        assert "Traceback" not in program.text()
