"""Two learners of one run: they end, resume and crash together, and wait for one's actors."""

from __future__ import annotations

import os
import signal
from contextlib import closing

import pytest

from seed_rl.common.errors import LostLearnerError
from seed_rl.common.run_files import checkpoint_list, progress, returns_log
from seed_rl.launch.ports import free_port
from tests.helpers.cables import Cable
from tests.helpers.local_runs import frames_saved, nothing_runs, processes_of, start
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.nightly

FLAGS = (
    "--learners=2",
    "--insecure",
    "--batch_size=8",
    "--save_checkpoint_secs=2",
    "--normalize_observations",
)


def learner(place, index):
    """Process id of a learner that trains; None before that."""
    known = progress.read(place.logdir / (f"learner-{index}" if index else "."))
    return known.pid if known is not None and known.phase == "training" else None


def trains_on(place, run, before=(None, None)):
    """Waits for new learners, and a checkpoint of theirs; returns their process ids."""
    pids = wait_until(
        lambda: (
            all(now := [learner(place, i) for i in range(2)]) and not {*now} & {*before} and now
        ),
        running=run,
    )
    saved = frames_saved(place) or 0
    wait_until(lambda: (frames_saved(place) or 0) > saved, running=run)
    return pids


def test_two_learners_crash_stop_resume_and_end_together(place):
    run = start(place, *FLAGS)
    pids = trains_on(place, run)

    # kill -9 of each of them in turn: all start again from the checkpoint.
    for index in (1, 0):
        os.kill(pids[index], signal.SIGKILL)
        pids = trains_on(place, run, before=pids)
        assert f"learner {index} was killed by SIGKILL; restarting all learners" in run.text()
    assert "Resuming after" in (place.logdir / "logs" / "learner-1.log").read_text()

    # SIGTERM of one ends all, who save; the supervisor exits with 0.
    os.kill(pids[1], signal.SIGTERM)
    assert run.wait() == 0, run.text()
    assert nothing_runs(place)
    saved = frames_saved(place)
    assert saved == place.progress().frames == progress.read(place.logdir / "learner-1").frames

    # Ctrl-C does as well. One learner's actors are gone: the other waits for them and says so.
    run = start(place, *FLAGS)
    trains_on(place, run)
    actors = processes_of(place, "actor")
    for pid in actors.values():
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: "waiting for the actors of learner" in run.text(), running=run)
    for pid in actors.values():
        os.kill(pid, signal.SIGCONT)
    run.send(signal.SIGINT)
    assert run.wait() == 0, run.text()
    assert nothing_runs(place)
    assert frames_saved(place) > saved

    end = frames_saved(place) + 1600
    run = start(place, *FLAGS, f"--total_environment_frames={end}")
    assert run.wait() == 0, run.text()
    assert "training has ended" in run.text()
    assert end <= frames_saved(place) < end + 8 * 20
    # Episodes end at frames of all learners, not of one: halfway, then.
    assert returns_log.read(place.logdir / returns_log.FILE_NAME)[-1].frames > end - 300
    for index, log in enumerate(("learner.log", "learner-1.log")):
        assert "Traceback" not in (place.logdir / "logs" / log).read_text(), index


def test_every_checkpoint_has_the_replays_of_all(place):
    """Guards frames that go on while a checkpoint is saved, by which it was looked for."""
    run = place.start(
        "seed_rl.launch.local",
        *("gym", "sac", "2", "4", "--env_name=Pendulum-v1", "--learners=2", "--insecure"),
        *("--replay_buffer_min_size=100", "--total_environment_frames=1500"),
        *("--mlp_sizes=16", "--batch_size=32", "--replay_ratio=32"),
        *("--save_checkpoint_secs=1", "--save_replay=always", "--tensorboard=false"),
        *(f"--logdir={place.logdir}", "--checkpoints_to_keep=100"),
    )
    assert run.wait() == 0, run.text()
    saved = checkpoint_list.list_checkpoints(place.logdir / checkpoint_list.DIRECTORY)
    assert len(saved) > 2
    for entry in saved:
        assert {"replay", "replay-1"} <= {path.name for path in entry.path.iterdir()}


class Pair:
    """Two learners and an actor of each, started one by one, as on two hosts."""

    def __init__(self, place, lists=None):
        addresses = [f"localhost:{free_port()}" for _ in range(2)]
        self._place = place
        self._lists = lists or [addresses] * 2
        self.learners = [
            self._start(i, "learner", "--insecure", f"--logdir={place.logdir}", "--batch_size=8")
            for i in range(2)
        ]
        self.actors = [self.actor(i) for i in range(2)]

    def actor(self, index):
        return self._start(index, "actor", "--task=0")

    def _start(self, index, mode, *flags):
        return self._place.start(
            "seed_rl.gym.vtrace_main",
            *(f"--run_mode={mode}", "--env_name=CartPole-v1", "--seed=1", *flags),
            f"--server_address=unix:{self._place.logdir}-{index}.sock",
            *("--num_envs=2", "--env_batch_size=2", f"--learner_index={index}"),
            f"--learner_addresses={','.join(self._lists[index])}",
        )


def test_learners_wait_for_the_actors_of_one(place):
    """Guards uneven hosts: one's actors die, all wait and say for whom, and go on."""
    pair = Pair(place)
    place.trains_on(pair.learners[0], 1000)
    pair.actors[1].kill()
    waits = "waiting for the actors of learner 1"
    wait_until(lambda: waits in (place.progress().warning or ""), running=pair.learners[0])
    frames = place.progress().frames
    other = progress.read(place.logdir / "learner-1")
    assert other.frames == frames and waits in other.warning

    pair.actor(1)
    wait_until(lambda: place.progress().frames > frames + 1000, running=pair.learners[0])
    assert waits not in (place.progress().warning or "")
    pair.learners[1].send(signal.SIGTERM)
    assert [learner.wait() for learner in pair.learners] == [0, 0]
    assert frames_saved(place) == place.progress().frames


def test_a_partition_ends_both(place):
    """Guards against hosts that are up and cannot reach each other: nothing hangs."""
    ports = [free_port(), free_port()]
    with closing(Cable(ports[0])) as to_0, closing(Cable(ports[1])) as to_1:
        own = [f"localhost:{port}" for port in ports]
        pair = Pair(place, [[own[0], to_1.address], [to_0.address, own[1]]])
        place.trains_on(pair.learners[0], 1000)
        to_0.cut()
        to_1.cut()
        for index, learner in enumerate(pair.learners):
            assert learner.wait() == LostLearnerError.exit_code, learner.text()
            assert learner.errors()[0].startswith(f"error: Lost learner {1 - index}:")
