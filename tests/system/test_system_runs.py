"""Whole runs under the supervisor of ./run_local.sh: real learner, real actors, real kill."""

from __future__ import annotations

import json
import os
import signal

import pytest

from seed_rl.common.run_files import returns_log
from tests.helpers import REPOSITORY
from tests.helpers.local_runs import (
    frames_saved,
    nothing_runs,
    processes_of,
    start,
    trains_on,
)
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.slow

LEAST = 30_000
"""Frames of a whole run, in which CartPole is learned in part."""
AHEAD = 2500
"""Frames that actors may play beyond those of the run: the rest of the last batch, batches that are
ready or queued, and unrolls that they have begun, also in earlier lives."""


def test_a_run_is_killed_interrupted_resumed_and_ended(place):
    run = start(place)
    trains_on(place, run)

    # kill -9 of one actor, then of both: restarted each time, and training continues.
    for victims in ([0], [0, 1]):
        before = wait_until(lambda: len(p := processes_of(place, "actor")) == 2 and p, running=run)
        for task in victims:
            os.kill(before[task], signal.SIGKILL)
        after = wait_until(
            lambda before=before, victims=victims: (
                len(p := processes_of(place, "actor")) == 2
                and all(p[task] != before[task] for task in victims)
                and p
            ),
            running=run,
        )
        assert all((after[task] != before[task]) == (task in victims) for task in (0, 1))
        trains_on(place, run)
    assert run.text().count("was killed by SIGKILL; restarting it") == 3

    # Ctrl-C: everything trained is saved, nothing is left running.
    run.send(signal.SIGINT)
    assert run.wait() == 0, run.text()
    assert nothing_runs(place)
    interrupted_at = frames_saved(place)
    assert place.progress().frames == interrupted_at > 0

    # The same command continues from there, and ends at its number of frames. (A fast machine has
    # trained on more than the least before Ctrl-C.)
    total = max(LEAST, interrupted_at + 10_000)
    run = start(place, f"--total_environment_frames={total}")
    assert run.wait() == 0, run.text()
    assert "training has ended" in run.text()
    assert "unexpectedly" not in run.text()  # Actors that the learner has told to end.
    assert nothing_runs(place)
    log = (place.logdir / "logs" / "learner.log").read_text()
    assert f"Resuming after {interrupted_at} environment frames" in log
    assert "Traceback" not in log
    assert place.progress().phase == "done"
    assert total <= frames_saved(place) == place.progress().frames < total + 1000
    check_what_is_left(place, total)


def check_what_is_left(place, total):
    """TensorBoard's file, the episodes' returns and the exported policy make sense."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(place.logdir))
    events.Reload()
    tags = {tag for kind in ("scalars", "tensors") for tag in events.Tags()[kind]}
    assert {
        "charts/episode_return",
        "charts/loss",
        "charts/frames_per_s",
        "system/environment_starts",
    } <= tags
    documented = (REPOSITORY / "docs" / "monitoring.md").read_text()
    curves = {tag for tag in tags - {"options"} if not tag.startswith("_hparams_")}
    assert not [tag for tag in curves if f"`{tag}`" not in documented]
    for tag in tags & set(events.Tags()["tensors"]):
        steps = [event.step for event in events.Tensors(tag)]
        assert all(0 <= step <= total + 1000 for step in steps)

    rows = returns_log.read(place.logdir / "returns.csv")
    frames = [row.frames for row in rows]
    assert frames == sorted(frames) and frames[-1] <= total + AHEAD
    assert {row.env_id for row in rows} == {0, 1, 2, 3}
    # CartPole pays 1 per step; every step but those of unfinished episodes is in one row.
    assert all(row.episode_return == row.episode_frames for row in rows)
    assert 0.8 * total < sum(row.episode_frames for row in rows) < 1.2 * total

    config = json.loads(next((place.logdir / "checkpoints").glob("*/config.json")).read_text())
    assert config["num_envs"] == 4
    assert (place.logdir / "saved_model" / "saved_model.pb").is_file()
