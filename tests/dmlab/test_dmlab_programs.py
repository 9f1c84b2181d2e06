"""The program, from flags to TensorBoard, on the stand-in for the engine."""

from __future__ import annotations

import json
import math
import signal
from typing import Any

import pytest

from seed_rl.common.run_files import returns_log
from tests.helpers import REPOSITORY, STANDINS
from tests.helpers.events import read_arrays
from tests.helpers.system_helpers import Program
from tests.helpers.waiting import wait_until

MAIN = "seed_rl.dmlab.vtrace_main"
FLAGS = REPOSITORY / "seed_rl" / "dmlab" / "impala_dmlab30.flags"
LEVELS = (
    "rooms_collect_good_objects_train",
    "language_execute_random_task",
    "natlab_fixed_large_map",
)


@pytest.mark.slow
def test_several_levels_are_trained_in_one_run(tmp_path: Any, socket_address: str) -> None:
    """Guards the paper's flag file, instructions over the wire, evaluation on levels of tests, the
    shared cache, and reports by level.
    """
    logdir = tmp_path / "run"
    shared = (
        f"--flagfile={FLAGS}",
        f"--game={','.join(LEVELS)}",
        f"--server_address={socket_address}",
        f"--level_cache_dir={tmp_path}/levels",
        *("--num_envs=6", "--num_eval_envs=3", "--env_batch_size=3", "--seed=1"),
        *("--width=48", "--height=36", "--torso=impala_shallow", "--lstm_sizes=8"),
        *("--unroll_length=5", "--batch_size=3"),
    )
    environment = {"PYTHONPATH": str(STANDINS)}
    learner = Program(MAIN, "--run_mode=learner", f"--logdir={logdir}", *shared)
    actors = [
        Program(MAIN, "--run_mode=actor", f"--task={i}", *shared, environment=environment)
        for i in range(2)
    ]

    def players() -> set[int]:
        path = logdir / returns_log.FILE_NAME
        return {episode.env_id for episode in returns_log.read(path)} if path.exists() else set()

    try:
        # The actor that evaluates may come long after the one that trains.
        wait_until(lambda: players() == set(range(6)), running=learner)
        learner.send(signal.SIGTERM)
        assert learner.wait() == 0, learner.text()
        for actor in actors:
            actor.send(signal.SIGTERM)
            assert actor.wait() == 0, actor.text()
    finally:
        for program in (learner, *actors):
            program.kill()
    episodes = returns_log.read(logdir / returns_log.FILE_NAME)
    assert {episode.episode_frames for episode in episodes} == {60}
    assert all(math.isfinite(episode.episode_return) for episode in episodes)
    tests = ("rooms_collect_good_objects_test", *LEVELS[1:])
    expected = {f"task_{what}/{level}" for level in LEVELS for what in ("return", "score")}
    expected |= {f"evaluation_task_{what}/{t}" for t in tests for what in ("return", "score")}
    expected |= {"charts/task_score", "charts/evaluation_task_score"}
    assert expected <= read_arrays(logdir).keys()
    assert len(list((tmp_path / "levels").iterdir())) >= 6
    options = json.loads((logdir / "config.json").read_text())
    assert options["reward_shaping"] == "soft_asymmetric" and not options["max_abs_reward"]
    assert options["optimizer"] == "rmsprop" and options["discounting"] == 0.99
    assert options["optimizer_epsilon"] == pytest.approx(0.1 / 3200**2)
    assert options["clip_norm"] == pytest.approx(40 / 3200)
