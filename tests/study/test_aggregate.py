"""Results of studies as Markdown: from the files that a study writes, or a copy of them."""

import dataclasses
import itertools
import json
import math
import shutil

import numpy as np
import pytest
import scipy.stats

from seed_rl.study import aggregate, finished, program, statistics
from seed_rl.study.directory import RESULTS
from seed_rl.study.results import CURVES
from seed_rl.study.spec import Choice

SPEC = {
    "game": "gym",
    "agent": "vtrace",
    "actors": 2,
    "envs_per_actor": 8,
    "frames": 1000,
    "seeds": 3,
    "sampler": "grid",
    "description": "Two tasks.",
    "choices": {"env_name": {"values": ["A-v1", "B-v1"]}},
    "evaluation_episodes": 10,
}
REFERENCES = """agent,task,method,score,deviation,frames,seeds,window,protocol,source
,A-v1,random,10,,0,,,,
,A-v1,human,110,,0,,,,
,B-v1,human,2000,,0,,,,
vtrace,A-v1,Another,80,5,1000,,,"whole games, best evaluation",https://example.org
,A-v1,Longer,100,5,2500000,5,,"sticky, training return",https://example.org
,A-v1,Sticky,100,5,1000,4,500,"sticky, training return",https://example.org
ppo,A-v1,Unlike,100,5,1000,5,,last returns,https://example.org
"""
HEADER = (
    "configuration,seed,env_name,performance,final_return,episodes,evaluation_mean,evaluation_std,"
    "evaluation_median,evaluation_episodes,frames_per_s,status,note\n"
)


@pytest.fixture
def folder(tmp_path):
    """The files of a study: A scores 60, 110 and 85, B 1000 and 3000 and is still running."""
    path = tmp_path / "two_tasks"
    path.mkdir()
    (path / "study.json").write_text(
        json.dumps(
            {
                "spec": SPEC,
                "commits": ["abc123"],
                "machines": ["2 cores (X)"],
                "versions": ["tensorflow 2"],
            }
        )
    )
    rows = [
        *((0, 1, "A-v1", 60, "done"), (0, 2, "A-v1", 110, "done"), (0, 3, "A-v1", 85, "done")),
        *((1, 1, "B-v1", 1000, "done"), (1, 2, "B-v1", 3000, "done")),
    ]
    lines = [
        f"{c},{s},{task},1,{score - 10 * s},9,{score},1,1,10,500,{status},\n"
        for c, s, task, score, status in rows
    ]
    (path / RESULTS).write_text(HEADER + "".join(lines) + "1,3,B-v1,,,,,,,0,400,running,\n")
    curve = [f"{c},{s},{frames},{score}\n" for c, s, _, score, _ in rows for frames in (500, 1000)]
    (path / CURVES).write_text("configuration,seed,frames,return\n" + "".join(curve))
    (tmp_path / "references.csv").write_text(REFERENCES)
    return path


def test_tables_on_a_page(folder, tmp_path, capsys):
    """Each run is there, beside what is published and how that differs, normalized as said."""
    page = tmp_path / "page.md"
    page.write_text(
        "# Mine\n<!-- two_tasks -->\nold\n<!-- end of two_tasks -->\nbetween\n"
        "<!-- comparison -->\n<!-- end of comparison -->\nafter\n"
    )
    command = ["aggregate", str(folder), f"--references={tmp_path / 'references.csv'}"]
    assert program.main([*command, f"--page={page}"]) == 0, capsys.readouterr().err
    text = page.read_text()
    assert text.startswith("# Mine\n<!-- two_tasks -->\n") and text.endswith("-->\nafter\n")
    assert "old" not in text and "between" in text
    assert (
        "./run_local.sh gym vtrace 2 8 --env_name=A-v1 --total_environment_frames=1000 --seed=1"
        in text
    )
    assert "1,000 frames, seeds 1 to 3; 5 of 6 runs are done." in text
    assert "On 2 cores (X). With tensorflow 2. Commit: abc123." in text
    # Student's t with two degrees of freedom is 4.303: of 60, 110 and 85, 4.303 * 25 / sqrt(3).
    assert "| A-v1 | **85.0** | 22.9 to 147.1 | 60.0, 110.0, 85.0 | 65.0 (" in text
    # Training returns 50, 90 and 55: 4.303 * 21.8 / sqrt(3).
    assert "| 65.0 (10.9 to 119.1) | 10 | 110 | 80 ± 5 | 100 ± 5 |" in text
    unlike = "in training, sticky actions"
    columns = f"random | human | Another (best of the run) | Sticky ({unlike})"
    assert f"| in training | {columns} |" in text
    assert "| B-v1 | **2,000** | -10,706 to 14,706 | 1,000, 3,000 |" in text
    assert "Another: whole games, best evaluation (https://example.org)" in text
    assert "Unlike" not in text and "Longer" not in text
    # A: 0.5, 1, 0.75. B, whose zero is 0: 0.5, 1.5. The middle of five: 0.75 and parts of others.
    (row,) = [line for line in text.splitlines() if line.startswith("| two_tasks |")]
    found = [float(cell.split()[0]) for cell in row.strip("| ").split(" | ")[1:]]
    assert found == pytest.approx([0.75, 0.875, 0.875, 0.25], abs=0.006)
    for picture in ("curves.png", "profile.png"):
        assert (folder / picture).read_bytes().startswith(b"\x89PNG")
    # A copy of the three files is enough, and gives the same page.
    copy = tmp_path / "copy" / folder.name
    copy.mkdir(parents=True)
    for name in ("study.json", RESULTS, CURVES):
        shutil.copy(folder / name, copy)
    assert program.main(["aggregate", str(copy), *command[2:], f"--page={page}"]) == 0
    assert page.read_text() == text


@pytest.mark.parametrize(
    ("sticky", "protocol", "mark"),
    [
        (False, "sticky actions", "A (sticky actions)"),
        (True, "sticky actions", "A"),
        (False, "no sticky actions", "A"),
        (True, "no sticky actions", "A (no sticky actions)"),
        (True, "whole games", "A"),
        ("false", "no sticky actions", "A"),  # As --seeds writes it.
        ("True", "sticky actions", "A"),
    ],
)
def test_scores_with_other_sticky_actions_are_marked(folder, sticky, protocol, mark):
    """Guards a column that stands beside ours as if it had been measured likewise."""
    study = finished.read(folder)
    spec = dataclasses.replace(study.spec, flags={"sticky_actions": sticky})
    row = reference(protocol=protocol)
    assert f"| in training | {mark} |" in aggregate.markdown(study._replace(spec=spec), [row])


def test_sampled_sticky_actions_are_those_of_the_configuration(folder):
    """Guards scores that stand beside a configuration that was not measured likewise."""
    choice = Choice("sticky", "values", (False, True), "sticky_actions")
    spec = dataclasses.replace(finished.read(folder).spec, choices=(choice,))
    row = reference(protocol="sticky actions")
    assert row.title(spec) == row.title(spec, {"sticky": "false"}) == "A (sticky actions)"
    assert row.title(spec, {"sticky": "True"}) == "A"


@pytest.mark.parametrize(
    ("flag", "first", "second"),
    [("env_name", 1, 32), ("env_name", True, False), ("env", "nature", "impala")],
)
def test_settings_are_named(folder, capsys, flag, first, second):
    """A study of a setting is of one environment, whose references it has, too."""
    for path, write in ((folder / "study.json", json.dumps), (folder / RESULTS, str)):
        text = path.read_text().replace("env_name", "setting")
        text = text.replace('"choices"', f'"flags": {{"{flag}": "C"}}, "choices"')
        for task, value in (("A-v1", first), ("B-v1", second)):
            text = text.replace(json.dumps(task), write(value)).replace(task, write(value))
        path.write_text(text)
    assert program.main(["aggregate", str(folder)]) == 0, capsys.readouterr().err
    assert f"| C, setting={first} | **85.0** |" in (output := capsys.readouterr().out), output
    assert f"| C, setting={second} | **2,000** |" in output
    # They are compared on one axis.
    (panel,) = aggregate.pictures([finished.read(folder)], [])["gym"]
    assert [one.label for one in panel.curves] == [f"setting={first}", f"setting={second}"]


def test_several_studies_on_a_page(folder, tmp_path, capsys):
    """Each task is beside the published scores that are comparable: as many frames, of a known
    number of seeds, and measured likewise. An environment has one axis.
    """
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    record = json.loads((other / "study.json").read_text())
    record["spec"] |= {"agent": "ppo", "frames": 2000}
    (other / "study.json").write_text(json.dumps(record))
    page = tmp_path / "page.md"
    names = ("overview", "two_tasks", "other")
    page.write_text("".join(f"<!-- {name} -->\n<!-- end of {name} -->\n" for name in names))
    references = tmp_path / "references.csv"
    arguments = [str(folder), str(other), f"--references={references}", f"--page={page}"]
    assert program.main(["aggregate", *arguments]) == 0
    lines = page.read_text().partition("<!-- end of overview -->")[0].splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "-v1" in line]
    assert [row[1] for row in cells] == ["A-v1", "A-v1", "B-v1", "B-v1"]
    # "Another" has one run. Returns in training of the last 500 frames, as in the curves, are 60,
    # 110 and 85; those of the last tenth are 10 lower for each seed.
    ours = ["vtrace ([two_tasks](two_tasks/study.json))", "0.001M", "3", "85.0 (22.9 to 147.1)"]
    compared = ["Sticky (in training, sticky actions)", "100 ± 5", "-15.0 (-74.7 to 44.7)"]
    assert cells[0] == ["gym", "A-v1", *ours, "65.0 (10.9 to 119.1)", *compared]
    assert cells[1][2].startswith("ppo ([other]") and cells[1][7:] == [""] * 3
    # Where these are from is said once.
    assert page.read_text().count("Sticky: sticky, training return (https://example.org)") == 1
    assert (tmp_path / "gym.png").read_bytes().startswith(b"\x89PNG")
    studies = [finished.read(path) for path in (folder, other)]
    panels = aggregate.pictures(studies, aggregate.read_references(references))["gym"]
    assert [panel.title for panel in panels] == ["A-v1", "B-v1"]
    assert [one.label for one in panels[0].curves] == ["two_tasks", "other"]
    assert [one.label for one in panels[0].points] == ["Sticky"]
    # One of them alone does not have all rows.
    text = page.read_text()
    capsys.readouterr()
    assert program.main(["aggregate", str(folder), *arguments[2:]]) == 0
    assert page.read_text() == text
    assert "the overview in" in capsys.readouterr().out


def reference(**values):
    """A published score of A-v1, 40 ± 5 of five seeds, but for `values`."""
    row = dict(agent="", task="A-v1", method="A", score=40.0, deviation=5.0, frames=1000, seeds=5)
    return aggregate.Reference(**(row | {"window": 0, "protocol": "", "source": ""} | values))


@pytest.mark.parametrize(("score", "deviation", "seeds"), [(100, 5, 4), (40, 10, 5)])
def test_the_difference_from_a_published_mean(score, deviation, seeds):
    """Welch's from a mean and a sample deviation, against SciPy's of a sample with both."""
    row = reference(score=score, deviation=deviation, seeds=seeds)
    unit = np.linspace(-1, 1, seeds)
    sample = score + deviation * unit / np.std(unit, ddof=1)
    test = scipy.stats.ttest_ind([60, 110, 85], sample, equal_var=False)
    expected = (85 - score, *test.confidence_interval(0.95))
    assert row.difference([60, 110, 85]) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "actions", "difference"),
    # Ours are 60, 110 and 85, and 50, 90 and 55 in the last tenth of training.
    [
        (dict(score=40.0), "greedy", "+45.0 (-15.2 to 105.2)"),
        (dict(score=400.0, deviation=1.0), "greedy", "-315.0 (-377.0 to -253.0)"),
        (dict(protocol="sampled actions"), "greedy", "+25.0 (-"),
        (dict(protocol="sampled actions"), "sampled", "+45.0 (-"),
        (dict(deviation=0.0), "greedy", None),  # Equal seeds are probably rounded.
        (dict(deviation=None), "greedy", None),
        (dict(seeds=0), "greedy", None),
        (dict(frames=2000), "greedy", None),
        (dict(agent="ppo"), "greedy", None),
        # The last seed has no episode there.
        (dict(protocol="training return", window=700), "greedy", "2 of 3 seeds"),
    ],
)
def test_what_is_compared(folder, values, actions, difference):
    """Guards claims of being ahead: after as many frames, of known spreads, of all seeds, and of
    actions that are chosen likewise.
    """
    study = finished.read(folder)
    study = study._replace(spec=dataclasses.replace(study.spec, evaluation_actions=actions))
    *others, last = study.tasks[0].runs
    last = last._replace(curve=np.array([[500, np.nan], [1000, np.nan]]))
    task = study.tasks[0]._replace(runs=[*others, last])
    found = [row[2] for row in aggregate._compared(study, task, [reference(**values)])]
    assert [text[: len(difference or "")] for text in found] == [difference] * bool(difference)


@pytest.mark.parametrize(
    ("name", "before", "after", "named"),
    [
        (RESULTS, "0,1,", "0,one,", "results.csv, row 1: seed: "),
        (RESULTS, "final_return", "last_return", "results.csv lacks the columns final_return"),
        (CURVES, "0,1,1000,", "0,1,1000 frames,", "curves.csv, row 2: frames: "),
        (CURVES, "0,1,1000,", "0,1,1000,?", "curves.csv, row 2: return: "),
        ("../references.csv", "random,10,", "random,n/a,", "references.csv, row 1: score: "),
        ("../references.csv", "random,10,,0", "random,10,,", "references.csv, row 1: frames: "),
        ("../references.csv", "1000,4,", "1000,4.0,", "references.csv, row 6: seeds: "),
        ("../references.csv", "1000,4,500,", "1000,4,1M,", "references.csv, row 6: window: "),
        ("../references.csv", "10,,0,,,,", "10,,0,,", "references.csv, row 1: it has too few"),
    ],
)
def test_what_is_damaged_in_a_file_is_named(folder, capsys, name, before, after, named):
    """Guards users from tracebacks about a file that was edited or cut."""
    text = (folder / name).read_text()
    assert before in text
    (folder / name).write_text(text.replace(before, after, 1))
    assert program.main(["aggregate", str(folder), f"--references={folder}/../references.csv"]) == 2
    assert named in capsys.readouterr().err


def test_returns_of_evaluation_episodes_are_not_called_training_returns(folder, monkeypatch):
    """Guards tables, comparisons and pictures of studies that are rated by evaluation episodes."""
    record = json.loads((folder / "study.json").read_text())
    record["spec"]["performance"] = {"episodes": "evaluation"}
    (folder / "study.json").write_text(json.dumps(record))
    study = finished.read(folder)
    rows = [reference(), reference(protocol="training return", method="B")]
    assert "| 65.0 (10.9 to 119.1), evaluation episodes | 40 ± 5 |" in aggregate.markdown(
        study, rows
    )
    ((title, *_),) = aggregate._compared(study, study.tasks[0], rows)
    assert title == "A"
    drawn = []
    monkeypatch.setattr(aggregate.curves, "draw", lambda panels, out, label: drawn.append(label))
    (folder / RESULTS).write_text((folder / RESULTS).read_text().replace(",1,1,10,", ",,,0,"))
    assert program.main(["aggregate", str(folder)]) == 0
    assert drawn == ["evaluation return"]
    assert "Scores are evaluation returns of" in aggregate.markdown(finished.read(folder), [])


@pytest.mark.parametrize("score", [0.1, 0.7, 3.0])
def test_equal_scores_are_said_to_be_equal(score):
    """Guards tables from an interval that only the rounding of a mean has."""
    interval = statistics.mean_of_seeds([score] * 3)
    assert aggregate._estimate(interval, ".1f") == f"{score} (all equal)"


def test_methods_that_were_published_alike_share_a_source(folder):
    """Guards pages from repeating a protocol and an address for each method."""
    alike = {"protocol": "training return", "source": "https://example.org"}
    rows = [
        reference(**alike),
        reference(**alike | {"method": "B, small"}),
        reference(**alike | {"method": "B, small", "task": "B-v1"}),
        reference(**alike | {"method": "C", "protocol": "last returns"}),
    ]
    text = aggregate.markdown(finished.read(folder), rows)
    shared = "A; B, small: training return (https://example.org). C: last returns (https:"
    assert f"\n\n{shared}//example.org).\n" in text


def test_names_of_studies_differ(folder, tmp_path, capsys):
    """Guards a section from being that of another study."""
    other = tmp_path / "elsewhere" / folder.name
    shutil.copytree(folder, other)
    assert program.main(["aggregate", str(folder), str(other)]) == 2
    assert "two_tasks cannot be the name of one" in capsys.readouterr().err


def test_what_cannot_be_aggregated_is_said(folder, tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("# Mine\n")
    assert program.main(["aggregate", str(folder), f"--page={page}"]) == 2
    assert "Add two lines: <!-- two_tasks -->" in capsys.readouterr().err
    assert page.read_text() == "# Mine\n"
    page.write_bytes("# Größe\n".encode("latin-1"))
    assert program.main(["aggregate", str(folder), f"--page={page}"]) == 2
    assert "Cannot update" in capsys.readouterr().err
    (folder / CURVES).unlink()
    assert program.main(["aggregate", str(folder)]) == 2
    assert "--results_only" in capsys.readouterr().err
    references = tmp_path / "references.csv"
    references.write_text("task,score\nA-v1,3\n")
    assert program.main(["aggregate", str(folder), f"--references={references}"]) == 2
    assert program.main(["aggregate", str(tmp_path / "none")]) == 2
    assert "There is no study in" in capsys.readouterr().err


def test_a_training_return_does_not_replace_scores_that_are_not_finite(folder):
    """Guards tables of evaluations, which would list a training return as one."""
    table = folder / RESULTS
    row = "0,1,A-v1,1,50,9,60,1,1,10,500,done,\n"
    for instead, score in (("50,9,,,,10", None), ("50,9,,,,0", 50)):
        text = table.read_text()
        assert row in text
        table.write_text(text.replace(row, row.replace("50,9,60,1,1,10", instead)))
        scores = finished.read(folder).tasks[0].scores
        assert scores == [*([score] if score else []), 110, 85]
        table.write_text(text)


def test_a_run_without_a_finished_episode_keeps_its_score(folder):
    """Guards means from leaving out agents that got stuck, the worst of all."""
    rows = (folder / RESULTS).read_text().replace("0,2,A-v1,1,90,9,", "0,2,A-v1,,,,")
    (folder / RESULTS).write_text(rows)
    curves = (folder / CURVES).read_text().splitlines(keepends=True)
    (folder / CURVES).write_text("".join(row for row in curves if not row.startswith("0,2,")))
    study = finished.read(folder)
    assert study.tasks[0].scores == [60, 110, 85]
    text = aggregate.markdown(study, [])
    assert "| 22.9 to 147.1 | 60.0, 110.0, 85.0 | 52.5 (20.7 to 84.3), 2 of 3 seeds |" in text


def test_runs_without_a_score_are_counted(folder):
    """Guards means of the others from looking like those of all that are done."""
    rows = (folder / RESULTS).read_text()
    row = "0,2,A-v1,1,90,9,110,1,1,10,500,done,\n"
    assert row in rows
    (folder / RESULTS).write_text(rows.replace(row, "0,2,A-v1,,,,,,,0,500,done,\n"))
    study = finished.read(folder)
    assert study.tasks[0].scores == [60, 85] and study.unscored == 1
    text = aggregate.markdown(study, [])
    assert "5 of 6 runs are done; runs without a score, which are left out: 1" in text


def test_the_unit_is_a_score_after_as_many_frames(folder):
    """Guards normalized scores from being fractions of what a longer run reached."""
    rows = [
        reference(task=task, method="Unit", score=score, frames=frames)
        for task in ("A-v1", "B-v1")
        for score, frames in ((100.0, 1000), (900.0, 3000))
    ]
    (scores,) = aggregate.normalized([finished.read(folder)], rows, "Unit")
    assert scores == [[0.6, 1.1, 0.85], [10, 30]]


SCORES = [[0.1, 0.9, 0.5, 1.4], [2.0, 0.2, 0.3, 0.3]]


def test_statistics_against_their_definitions():
    everything = sorted(SCORES[0] + SCORES[1])
    expected = {
        statistics.iqm: sum(everything[2:6]) / 4,
        statistics.mean: sum(everything) / 8,
        statistics.median: (0.725 + 0.7) / 2,
        statistics.optimality_gap: (0.9 + 0.1 + 0.5 + 0.8 + 0.7 + 0.7) / 8,
    }
    for statistic, value in expected.items():
        found = statistics.estimate(statistic, SCORES)
        assert found.estimate == pytest.approx(value)
        assert found.low < value < found.high
        assert statistics.estimate(statistic, SCORES) == found
    x, y = [[1, 2], [5, 5]], [[1, 1, 0], [6, 5, 4]]
    pairs = [
        np.mean([(a > b) + (a == b) / 2 for a, b in itertools.product(*p)])
        for p in zip(x, y, strict=True)
    ]
    found = statistics.estimate(statistics.improvement, [*x, *y])
    assert found.estimate == pytest.approx(np.mean(pairs))
    assert math.isnan(statistics.estimate(statistics.mean, [[1.0], [2.0, 3.0]]).low)
    np.testing.assert_allclose(
        statistics.profile(SCORES, np.array([0.0, 0.3, 1.5])), [1, (3 / 4 + 1 / 4) / 2, 1 / 8]
    )


def test_the_bootstrap_resamples_seeds_within_tasks():
    """Tasks of different levels with equal seeds: nothing varies, so the interval is a point."""
    found = statistics.estimate(statistics.mean, [[1.0, 1.0], [5.0, 5.0]])
    assert found == (3.0, 3.0, 3.0)
