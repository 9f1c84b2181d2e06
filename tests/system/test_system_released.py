"""A run of an earlier release, in `tests/data`, continues and plays as it was started."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from seed_rl.common.checkpoints import manifest
from seed_rl.common.run_files import checkpoint_list, run_record
from tests.helpers.forks import Forks
from tests.helpers.waiting import PATIENCE_S

RELEASED = Path(__file__).parents[1] / "data" / "run_0_1_0"
"""400 frames of CartPole: gym vtrace --mlp_sizes=4 --learning_rate=0.002 --batch_size=2, with two
environments, by format 0.1.0."""
MAIN = "seed_rl.gym.vtrace_main"


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """The run as if begun before `mlp_activation` and its preset: its networks used relu."""
    logdir = tmp_path / "run"
    shutil.copytree(RELEASED, logdir)
    checkpoint = checkpoint_list.list_checkpoints(logdir / "checkpoints")[-1].path
    shutil.copy(checkpoint / run_record.FILE, logdir)  # A run writes both alike.
    record = run_record.read(checkpoint)
    del record["mlp_activation"], record["origins"]["mlp_activation"]
    record["arguments"].remove("--mlp_activation=tanh")
    run_record.write(checkpoint, record)
    (checkpoint / "MANIFEST.json").unlink()
    manifest.seal(checkpoint)
    return logdir


@pytest.mark.slow
def test_a_run_of_an_earlier_release(released: Path, socket_address: str, forks: Forks) -> None:
    """Guards its options against today's presets, and the files against changes of their format.

    Also that learner and actor end with 0 when training is done, whatever --stopped_exit_code is.
    """
    shared = [f"--server_address={socket_address}", "--num_envs=2", "--env_batch_size=2"]
    shared += ["--stopped_exit_code=75"]
    actor = subprocess.Popen([sys.executable, "-m", MAIN, "--run_mode=actor", *shared])
    try:
        more = ["--total_environment_frames=440", f"--logdir={released}", "--nosave_model"]
        learner = forks.run("-m", MAIN, "--run_mode=learner", *shared, *more, code=0)
        assert actor.wait(PATIENCE_S) == 0
    finally:
        actor.kill()
        actor.wait()
    assert "--total_environment_frames was 400, is now 440" in learner.stderr
    progress = json.loads((released / "progress.json").read_text())
    assert progress["frames"] == 440 and progress["phase"] == "done"
    assert progress["devices"] == "inference on cpu:0, training on cpu:0"
    record = run_record.read(released)
    kept = {"mlp_activation": "relu", "learning_rate": 0.002, "mlp_sizes": [4], "batch_size": 2}
    assert {name: record[name] for name in kept} == kept
    assert {record["origins"][name] for name in kept} == {"saved run"}

    played = forks.run("-m", "seed_rl.play", released, "--episodes=1", code=0)
    assert "1 episode, greedy" in played.stdout
    other = forks.run("-m", "seed_rl.play", released, "--lstm_size=8", code=2)
    assert "--lstm_sizes was none, is now 8" in other.stderr
