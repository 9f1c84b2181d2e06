"""Learning curves from returns.csv."""

import numpy as np
import pytest

from seed_rl.common.errors import UserError
from seed_rl.common.monitoring import plots
from seed_rl.common.run_files.returns_log import EpisodeRow, ReturnsLog


def write_run(directory, returns, evaluation=()):
    directory.mkdir()
    log = ReturnsLog(directory)
    log.add(
        EpisodeRow(100 * n, 1000.0 + 36 * n, value, 10 * value, 100, 0, n in evaluation)
        for n, value in enumerate(returns)
    )
    log.flush()


def test_curves_are_running_means_with_evaluation_apart(tmp_path):
    write_run(tmp_path / "pong", [1, 2, 3, 10, 5], evaluation={3})
    training, evaluation = plots.read_curves([str(tmp_path / "pong")], window=2)
    assert training.label == "pong"
    assert training.x.tolist() == [0, 100, 200, 400]
    assert training.means.tolist() == [1, 1.5, 2.5, 4]
    assert evaluation.label == "pong (evaluation)"
    assert evaluation.returns.tolist() == [10]
    hours = plots.read_curves([str(tmp_path / "pong")], x="hours", score=True)
    np.testing.assert_allclose(hours[0].x, [0, 0.01, 0.02, 0.04])
    assert hours[0].returns.tolist() == [10, 20, 30, 50]


def test_the_program_draws_several_runs(tmp_path, capsys):
    write_run(tmp_path / "a", range(50))
    write_run(tmp_path / "b", range(50, 100))
    out = tmp_path / "curve.png"
    code = plots.main([str(tmp_path / "a"), str(tmp_path / "b"), f"--out={out}", "--x=hours"])
    assert code == 0
    assert out.read_bytes().startswith(b"\x89PNG")
    assert "b: 50 episodes, final mean return 74.5" in capsys.readouterr().out


def test_mistakes_are_told_in_one_line(tmp_path, capsys):
    assert plots.main([str(tmp_path / "nothing")]) == 2
    assert "Give the logdirs of runs" in capsys.readouterr().err
    write_run(tmp_path / "empty", [])
    with pytest.raises(UserError, match="no episodes yet"):
        plots.read_curves([str(tmp_path / "empty")])
    write_run(tmp_path / "a", [1])
    assert plots.main([str(tmp_path / "a"), f"--out={tmp_path}/no/where.png"]) == 2
    assert "Cannot write" in capsys.readouterr().err
