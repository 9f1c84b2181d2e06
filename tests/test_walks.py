"""What must be read to follow one thing through the code stays short (docs/architecture.md)."""

from __future__ import annotations

import inspect
import os
import pathlib
import re
import sys

import pytest
import tensorflow as tf

import seed_rl
from seed_rl import experiment
from tests.helpers.vtrace_runs import make_job

# Not a folder of any name: a checkout may be called seed_rl, with TensorFlow below it.
PACKAGE = os.path.join(os.path.dirname(seed_rl.__file__), "")


@pytest.mark.slow
def test_from_the_loop_of_a_learner_to_the_gradient(tmp_path, monkeypatch):
    """A V-trace step: frames from `train` to the gradient; with the loss, their files and lines."""
    walks: list[list[inspect.FrameInfo]] = []
    gradient = tf.GradientTape.gradient

    def traced(tape, *args, **kwargs):
        walks.append([frame for frame in inspect.stack(0) if frame.filename.startswith(PACKAGE)])
        return gradient(tape, *args, **kwargs)

    monkeypatch.setattr(tf.GradientTape, "gradient", traced)
    experiment.run(make_job(tmp_path, frames=200), callbacks=())
    names = [frame.function for frame in walks[0]]
    frames = walks[0][: names.index("train") + 1]
    loss = sys.modules["seed_rl.agents.vtrace.losses"].compute_loss
    own = sys.modules["seed_rl.agents.vtrace.algorithm"].VTrace.loss
    codes = [*(frame.frame.f_code for frame in frames), own.__code__, loss.__code__]
    lines = sum(len(inspect.getsourcelines(code)[0]) for code in codes)
    files = {code.co_filename for code in codes}
    assert len(frames) <= 7, names
    assert len(files) <= 5, files
    assert lines <= 260, lines


def test_the_walks_of_the_docs_lead_through_files_that_exist(repository):
    """Guards docs/architecture.md, from which alone each walk must be found: every file that it
    names exists, and defines the names that follow in brackets.
    """
    text = (repository / "docs/architecture.md").read_text()
    walks = text.partition("## Six walks")[2].partition("\n## ")[0]
    rows = [row for row in walks.splitlines() if "→" in row]
    assert len(rows) == 6
    for row in rows:
        stops = re.findall(r"`([\w/]+\.(?:py|cc))`(?: \(([^)]*)\))?", row)
        assert len(stops) >= 3, row
        for path, notes in stops:
            found = repository / "seed_rl" / path
            if "/" not in path:  # Named in an earlier row.
                (found,) = (repository / "seed_rl/common").rglob(path)
            assert found.exists(), path
            for name in re.findall(r"`([\w./]+)`", notes):
                if "/" in name:
                    assert (repository / "seed_rl" / name).exists(), name
                else:
                    assert defines(found, name.rpartition(".")[2]), (path, name)


def defines(file: pathlib.Path, name: str) -> bool:
    pattern = rf"::{name}\(" if file.suffix == ".cc" else rf"^\s*(def|class) {name}\b"
    return re.search(pattern, file.read_text(), re.MULTILINE) is not None
