"""A TensorBoard as run_local.sh starts it, asked over HTTP for what a learner has written."""

from __future__ import annotations

import contextlib
import json
import pathlib
import signal
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from seed_rl.common.monitoring.reporting import Reporter
from seed_rl.launch.local import free_port
from tests.helpers.inference_stores import make_store, step
from tests.helpers.system_helpers import Program
from tests.helpers.waiting import wait_until

RECORD = {
    "program": "seed_rl.gym.vtrace_main",
    "arguments": ["--batch_size=32", "--env_name=CartPole-v1"],
    "batch_size": 32,
    "learning_rate": 5e-4,
    "learning_rate_decay": True,
    "max_abs_reward": None,
    "mlp_sizes": (64, 64),
    "torso": "a|b",
    "logdir": "/elsewhere",
    "task": 0,
}


def report(logdir: pathlib.Path, start_frames: int = 0, **options: Any) -> None:
    """One life of a run that ends three episodes and trains once."""
    logdir.mkdir(exist_ok=True)
    store = make_store(num_envs=2, num_training_envs=1)
    for count in range(3):
        step(store, [0, 1], reward=float(count), done=count > 0)
    reporter = Reporter(
        logdir,
        store=store,
        num_training_envs=1,
        num_eval_envs=1,
        num_action_repeats=4,
        total_frames=1000,
        start_frames=start_frames,
        log_period_s=1000.0,
        record=RECORD,
        **options,
    )
    counts = dict(calls=1, rows=2, batches=1, answered=1, errors=0)
    served = dict(counts, queue_wait_us=1.0, run_us=1.0)
    metrics = {"loss": 0.5, "losses/policy": 0.25, "skipped_steps": 0.0}
    with reporter.watching(lambda: served):
        reporter.step(start_frames + 40, 1, metrics, dict, last=True)
    reporter.close()


@contextlib.contextmanager
def tensorboard(logdir: pathlib.Path) -> Iterator[Any]:
    """Yields `get(path, **query)`, which returns the JSON at /data/`path`."""
    port = free_port()
    program = Program(
        "seed_rl.launch.tensorboard", f"--logdir={logdir}", "--host=localhost", f"--port={port}"
    )

    def get(path: str, body: Any = None, **query: str) -> Any:
        url = f"http://localhost:{port}/data/{path}?{urllib.parse.urlencode(query)}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def runs() -> Any:
        try:
            return get("runs")
        except OSError:
            return []

    try:
        wait_until(runs, running=program)
        yield get
        program.send(signal.SIGTERM)
        assert program.wait() == 0
    finally:
        program.kill()


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """TensorBoard of a run with two lives, whose logdir is called maze."""
    logdir = tmp_path_factory.mktemp("runs") / "maze"
    report(logdir)
    report(logdir, start_frames=40)
    with tensorboard(logdir) as get:

        def is_read() -> bool:
            """Whether both lives are there: a run is listed before all of its files are read."""
            with contextlib.suppress(urllib.error.HTTPError):
                last = "train/steps"  # What a life writes last.
                return len(get("plugin/scalars/scalars", run="maze", tag=last)) == 2
            return False

        wait_until(is_read)
        yield get


@pytest.mark.slow
def test_the_first_group_has_the_main_curves(board: Any) -> None:
    """Guards what is seen first: TensorBoard sorts groups by name."""
    tags = sorted(board("plugin/scalars/tags")["maze"])
    groups = {tag.partition("/")[0]: None for tag in tags}
    assert list(groups)[0] == "charts"
    assert [tag for tag in tags if tag.startswith("charts/")] == [
        "charts/episode_return",
        "charts/evaluation_return",
        "charts/frames_per_s",
        "charts/loss",
    ]
    points = board("plugin/scalars/scalars", run="maze", tag="charts/episode_return")
    assert [(step, value) for _, step, value in points] == [(40, 1.5), (80, 1.5)]
    assert {"train/losses/policy", "train/skipped_fraction"} <= set(tags)


@pytest.mark.slow
def test_the_options_are_there_as_hyperparameters(board: Any) -> None:
    """Guards the tab HParams, that two lives of a run are one row, and that its first metric is
    the return, by which runs are compared.
    """
    (group,) = board(
        "plugin/hparams/session_groups",
        body={
            "allowedStatuses": [
                f"STATUS_{status}" for status in ("UNKNOWN", "SUCCESS", "FAILURE", "RUNNING")
            ],
            "colParams": [],
            "startIndex": 0,
            "sliceSize": 100,
        },
    )["sessionGroups"]
    assert group["hparams"] == {
        "batch_size": 32,
        "learning_rate": 5e-4,
        "learning_rate_decay": True,
        "max_abs_reward": "",
        "mlp_sizes": "64,64",
        "torso": "a|b",
    }
    metrics = {metric["name"]["tag"]: metric["value"] for metric in group["metricValues"]}
    assert next(iter(metrics.items())) == ("charts/episode_return", 1.5)


@pytest.mark.slow
def test_nothing_is_left_behind(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the directory that gives the run its name."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    report(tmp_path / "run")
    with tensorboard(tmp_path / "run") as get:
        assert get("runs") == ["run"]
        assert list((tmp_path / "tmp").glob("seed_rl_tensorboard_*/run"))
    assert not list((tmp_path / "tmp").glob("seed_rl_tensorboard_*"))
