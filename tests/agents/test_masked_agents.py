"""Every agent in an environment that raises when it gets an action that it forbids."""

import csv
from pathlib import Path

import pytest

import seed_rl
from tests.helpers.events import read_arrays

SIZES = {"replay_buffer_min_size": 20, "replay_buffer_size": 1000}


NIGHTLY = [
    ("r2d2", {"env_kwargs": '{"place": "observation"}', **SIZES}),
    ("ppo", {"env_kwargs": '{"choices": [2, 3], "place": "observation"}', "batch_size": 4}),
    ("pqn", {"env_kwargs": '{"place": "observation"}', "step_size_transitions": 128}),
    ("sac", {"replay_ratio": 64, **SIZES}),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, arguments",
    [("vtrace", {"env_kwargs": '{"choices": [2, 3]}'})]
    + [pytest.param(*case, marks=pytest.mark.nightly) for case in NIGHTLY],
)
def test_no_forbidden_action_is_taken(name, arguments, tmp_path):
    """In training, exploration and evaluation; and successes are in every report."""
    env, logdir = "seed_rl.testing.envs:Masked-v0", tmp_path / "run"
    options = {"actors": 1, "envs": 5, "num_eval_envs": 1, "log_period_secs": 1, "seed": 1}
    agent = seed_rl.train(name, env, frames=2e3, logdir=logdir, **options, **arguments)
    measured = agent.evaluate(episodes=4, seed=1)
    successes = [episode["success"] for episode in measured["episodes"]]
    assert measured["success"]["mean"] == sum(successes) / 4
    logs = "".join(file.read_text(errors="replace") for file in Path(logdir).rglob("*.log"))
    assert "is forbidden by" not in logs and "Ended after" in logs
    with open(logdir / "returns.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 100 and {row["evaluation"] for row in rows} == {"0", "1"}
    for row in rows:
        assert float(row["success"]) == (float(row["return"]) > 5), row
    tags = set().union(*(read_arrays(f.parent) for f in logdir.rglob("*tfevents*")))
    assert {"charts/success", "charts/evaluation_success"} <= tags
