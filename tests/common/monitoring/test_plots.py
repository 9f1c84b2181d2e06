"""Learning curves from returns.csv."""

import json
import shutil
import sys

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from seed_rl.common.errors import UserError
from seed_rl.common.monitoring import plots
from seed_rl.common.run_files.returns_log import EpisodeRow, ReturnsLog


def write_run(directory, returns, evaluation=(), **options):
    directory.mkdir(parents=True)
    log = ReturnsLog(directory)
    log.add(
        EpisodeRow(100 * n, 1000.0 + 36 * n, value, 10 * value, 100, 0, n in evaluation)
        for n, value in enumerate(returns)
    )
    log.flush()
    if options:
        record = {"program": "seed_rl.gym.ppo_main", "logdir": str(directory), **options}
        (directory / "config.json").write_text(json.dumps(record))


def test_curves_are_smoothed_with_evaluation_apart(tmp_path):
    """At a point: the episodes of the last share of the axis, and at least the last ten."""
    write_run(tmp_path / "pong", [*range(40), 1000], evaluation={40})
    training, evaluation = plots.read_groups([str(tmp_path / "pong")])
    assert (training.label, evaluation.label) == ("pong", "pong (evaluation)")
    curve = plots.curve(training)
    assert (curve.x[0], curve.x[-1]) == (0, 3900)
    assert curve.mean()[0] == 0 and curve.mean()[-1] == np.mean(range(30, 40))
    assert plots.curve(training, smoothing=0.5).mean()[-1] == np.mean(range(20, 40))
    assert plots.curve(evaluation).mean().tolist() == [1000]
    hours = plots.curve(training, "hours", score=True)
    assert hours.x[-1] == pytest.approx(0.39) and hours.mean()[-1] == 345


@pytest.mark.parametrize(("hours", "label", "last"), [(0.05, "minutes", 3.0), (2.0, "hours", 2.0)])
def test_short_runs_are_drawn_over_minutes(tmp_path, monkeypatch, hours, label, last):
    """Guards the axis of runs of minutes, whose labels overlapped as hundredths of an hour."""
    figures = []
    monkeypatch.setattr(plots, "save", lambda made, out: figures.append(made))
    one = plots.Curve("", np.linspace(0, hours, 5), np.ones([1, 5]))
    plots.draw([plots.Panel("", "hours", [one])], tmp_path / "unused.png")
    (axes,) = figures[0].axes
    assert axes.get_xlabel() == label
    assert axes.lines[0].get_xdata()[-1] == pytest.approx(last)


def test_seeds_are_one_curve_as_far_as_all_have_come(tmp_path):
    for seed, length in ((1, 50), (2, 50), (3, 30)):
        write_run(tmp_path / f"study/runs/0000-seed{seed}", [seed] * length, seed=seed, rate=0.1)
    write_run(tmp_path / "other", [7] * 20, seed=1, rate=0.2)
    group, other = plots.read_groups([str(tmp_path / "study"), str(tmp_path / "other")])
    assert (group.label, other.label) == ("rate=0.1 (3 seeds)", "rate=0.2")
    curve = plots.curve(group)
    assert curve.seeds.shape == (3, len(curve.x))
    common = curve.x <= 2900
    assert (curve.mean()[common] == 2).all() and np.isnan(curve.mean()[~common]).all()
    assert curve.interval() is None  # Of three, it would be 1 to 3.


def test_the_program_draws_for_paper_and_tensorboard(tmp_path, capsys):
    for seed in range(5):
        write_run(tmp_path / f"runs/{seed}", [5 + seed] * 50, seed=seed, lr=1)
    arguments = [str(tmp_path), f"--out={tmp_path}/curve", f"--tensorboard={tmp_path}/tb"]
    for _ in range(2):  # The second replaces the first.
        assert plots.main(arguments) == 0
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "(5 seeds): 250 episodes, mean return 7 at 4,900 frames\n" in printed
    assert f"Wrote {tmp_path}/curve.png." in printed
    (run,) = (tmp_path / "tb").iterdir()
    events = EventAccumulator(str(run)).Reload()
    ends = {tag: events.Scalars(tag)[-1] for tag in events.Tags()["scalars"]}
    assert {(end.step, round(end.wall_time)) for end in ends.values()} == {(4900, 49 * 36)}
    low, mean, high = (ends.pop(f"returns/{name}").value for name in ("low", "mean", "high"))
    assert 5 < low < 6 and mean == 7 and 8 < high < 9 and not ends


def test_tensorboard_is_named_where_it_is_missing(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    write_run(tmp_path / "a", [5] * 50, seed=1, lr=1)
    out = f"--out={tmp_path}/curve.png"
    assert plots.main([f"{tmp_path}/a", out, f"--tensorboard={tmp_path}/tb"]) == 2
    assert capsys.readouterr().err.endswith(" -m pip install tensorboard\n")


def test_mistakes_are_told_in_one_line(tmp_path, capsys):
    assert plots.main([str(tmp_path / "nothing")]) == 2
    assert "Give the logdirs of runs" in capsys.readouterr().err
    write_run(tmp_path / "empty", [])
    with pytest.raises(UserError, match="no episodes yet"):
        plots.read_groups([str(tmp_path / "empty")])
    write_run(tmp_path / "a", [1])
    assert plots.main([str(tmp_path / "a"), f"--out={tmp_path}/no/where.png"]) == 2
    assert "Cannot write" in capsys.readouterr().err


def test_what_a_folder_has_besides_seeds(tmp_path, capsys):
    """Guards means of seeds from a run moved aside and from copies, and against one just begun."""
    options = {"rate": 0.1, "program": "seed_rl.gym.ppo_main"}
    for name, seed in (("a", 1), ("a.20260101-000000", 1), ("b", 2)):
        write_run(tmp_path / name, [seed] * 20, seed=seed, **options)
    write_run(tmp_path / "begun", [], seed=3, **options)
    (group,) = plots.read_groups([str(tmp_path), str(tmp_path / "b")])  # One of them twice.
    assert len(group.runs) == 2 and not capsys.readouterr().err
    shutil.copytree(tmp_path / "b", tmp_path / "copy")
    (group,) = plots.read_groups([str(tmp_path)])
    assert len(group.runs) == 3
    note = f"note: {tmp_path}/b and {tmp_path}/copy have the same options and seed"
    assert capsys.readouterr().err.startswith(note)


def test_a_colour_means_the_same_in_all_panels(monkeypatch, tmp_path):
    """Guards studies that lack runs, and the legend, which explains all panels."""
    figures = []
    monkeypatch.setattr(plots, "save", lambda made, out: figures.append(made))
    curves = [
        plots.Curve(label, np.array([1.0, 2.0]), np.zeros((1, 2))) for label in ("a=1", "a=2")
    ]
    panels = [plots.Panel("", "frames", shown) for shown in (curves, curves[1:])]
    panels.append(plots.Panel("", "frames", curves, [plots.Point("published", 2.0, 1.0, 0.5)]))
    plots.draw(panels, tmp_path / "curves.png")
    first, second, third = figures[0].axes
    assert second.lines[0].get_color() == first.lines[1].get_color() != first.lines[0].get_color()
    assert third.lines[-1].get_color() not in {line.get_color() for line in first.lines}
    (legend,) = figures[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["a=1", "a=2", "published"]
