"""Studies as processes: to the end, stopped, killed, resumed, refused, failed."""

import csv
import dataclasses
import errno
import json
import os
import pathlib
import signal
import subprocess
import sys
from unittest import mock

import numpy as np
import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from seed_rl.common.run_files import checkpoint_list, progress
from seed_rl.common.run_files.returns_log import EpisodeRow, ReturnsLog
from seed_rl.common.system import nvidia, processor
from seed_rl.launch import run_lock, stop
from seed_rl.study import directory, program, results, runner, spec, trials
from tests.helpers import PROGRAMS, run_python, stand_in
from tests.helpers.waiting import PATIENCE_S, wait_until

SPEC = {
    "game": "gym",
    "agent": "vtrace",
    "frames": 30,  # Where the pretended learner ends.
    "configurations": 2,
    "flags": {"behaviour": "end"},
    "choices": {"value": {"uniform": [1, 9]}},
    "performance": {"intervals": 3},
}


class Study:
    """A study of pretended runs below a folder."""

    def __init__(self, folder):
        self.path = folder / "study"
        self.file = folder / "spec.json"
        self.output = folder / "output"
        self.spec = json.loads(json.dumps(SPEC))
        self.processes = []

    def start(self, *arguments, behaviour=""):
        self.file.write_text(json.dumps(self.spec))
        command = [sys.executable, str(PROGRAMS / "study_program.py"), str(self.file)]
        command += [f"--logdir={self.path}", *arguments]
        with open(self.output, "ab") as output:
            process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "BEHAVIOUR": behaviour},
            )
        self.processes.append(process)
        return process

    def run(self, *arguments):
        return self.start(*arguments).wait(PATIENCE_S)

    def text(self):
        return self.output.read_text()

    def logdir(self, number=0, seed=1):
        return self.path / "runs" / f"{number:04d}-seed{seed}"

    def starts(self, number=0):
        return (self.path / "runs" / f"{self.logdir(number).name}.starts").read_text().split()

    def trains(self, number=0):
        report = progress.read(self.logdir(number))
        return report is not None and report.phase == "training"

    def rows(self, name="results.csv"):
        with open(self.path / name, newline="") as file:
            return list(csv.DictReader(file))


@pytest.fixture
def study(tmp_path):
    study = Study(tmp_path)
    yield study
    for process in study.processes:
        process.kill()
        process.wait()
    logdirs = [path for path in study.path.glob("runs/*") if path.is_dir()]
    wait_until(lambda: all(run_lock.running_pid(logdir) is None for logdir in logdirs))


@pytest.mark.slow
def test_from_the_spec_to_the_plots(study):
    """Two at a time, two seeds each; a second start finds nothing left to do."""
    study.spec["seeds"] = 2
    assert study.run("--parallel=2") == 0, study.text()
    rows = study.rows()
    assert [(row["configuration"], row["seed"]) for row in rows] == [
        *(("0", "1"), ("0", "2"), ("1", "1"), ("1", "2"))
    ]
    trials = optuna.load_study(
        study_name="study",
        storage=JournalStorage(JournalFileBackend(str(study.path / "optuna.log"))),
    ).trials
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 2
    for row in rows:
        value = trials[int(row["configuration"])].user_attrs["values"]["value"]
        assert trials[int(row["configuration"])].value == pytest.approx(value)
        assert float(row["value"]) == value and row["status"] == "done"
        assert float(row["performance"]) == pytest.approx(value, rel=1e-5)
        assert float(row["final_return"]) == pytest.approx(value, rel=1e-5)
        assert row["episodes"] == "3" and row["note"] == ""
    bins = study.rows("percentiles.csv")
    assert sum(int(row["configurations"]) for row in bins) == 2 and len(bins) == 4
    assert (study.path / "plots" / "value.png").read_bytes().startswith(b"\x89PNG")
    best = max(rows, key=lambda row: float(row["performance"]))
    assert (
        "4 done" in study.text() and f"Best: configuration {best['configuration']}" in study.text()
    )
    assert "--total_environment_frames=30 --seed=1" in study.text()
    assert f"--value={best['value']} " in study.text()
    # More configurations join those that are done.
    study.spec["configurations"] = 3
    assert study.run() == 0
    assert len(study.rows()) == 6 and study.starts(0) == ["end"]


def test_runs_are_evaluated_and_kept_as_curves(study):
    """An evaluation that has ended early is done again next time; training is not."""
    study.spec |= {"configurations": 1, "evaluation_episodes": 2}
    assert study.run() == 0, study.text()
    (row,) = study.rows()
    assert row["status"] == "trained" and "the next start resumes it" in study.text()
    assert study.run() == 0
    (row,) = study.rows()
    assert row["status"] == "done" and row["evaluation_episodes"] == "2"
    assert (float(row["evaluation_mean"]), float(row["evaluation_std"])) == (7.5, 0.5)
    assert study.starts() == ["end"]
    # With other actions they are played again, but what was played stands until then.
    study.spec["evaluation_actions"] = "sampled"
    assert study.run("--results_only") == 0 and study.rows() == [row]
    assert study.run() == 0 and study.rows()[0]["status"] == "trained"
    assert study.run() == 0 and study.rows() == [row] and study.starts() == ["end"]
    curve = study.rows("curves.csv")
    assert len(curve) == 50 and float(curve[-1]["return"]) == float(row["final_return"])
    record = json.loads((study.path / "study.json").read_text())
    assert len(record["commits"]) <= 1  # None outside a checkout.
    assert record["machines"] == [f"{processor.cores()} cores ({processor.model()})"]
    assert f"numpy {np.__version__}" in record["versions"][0].split(", ")


@pytest.mark.slow
def test_a_copy_of_its_results_continues_elsewhere(study, tmp_path):
    """Guards runs that take days from being run again because their logdirs were not kept."""
    study.spec["evaluation_episodes"] = 1
    assert study.run() == 0
    before, curves = study.rows(), study.rows("curves.csv")
    kept = {name: (study.path / name).read_text() for name in ("results.csv", "curves.csv")}
    study.path.rename(tmp_path / "away")
    study.path.mkdir()
    for name in ("results.csv", "curves.csv", "study.json"):
        (study.path / name).write_text((tmp_path / "away" / name).read_text())
    assert study.run("--results_only") == 0, "the copy is not yet begun here"
    assert {name: (study.path / name).read_text() for name in kept} == kept
    study.spec["seeds"] = 2
    assert study.run() == 0
    seeds = [os.path.basename(path) for path in os.listdir(study.path / "runs")]
    assert {name for name in seeds if "." not in name} == {"0000-seed2", "0001-seed2"}
    assert study.rows()[::2] == before and len(study.rows()) == 4
    assert [row for row in study.rows("curves.csv") if row["seed"] == "1"] == curves
    # Nor are scores of greedy actions taken for others, or of one episode for those of two.
    for name, value in (("evaluation_actions", "sampled"), ("evaluation_episodes", 2)):
        study.spec |= {"evaluation_episodes": 1, name: value}
        assert study.run() == 2
        assert f'"{name}" was' in study.text() and "cannot be evaluated again" in study.text()
        del study.spec[name]
    study.spec["evaluation_episodes"] = 1
    # Results of other configurations are not taken for ours.
    (study.path / "optuna.log").unlink()
    value = before[0]["value"]
    (study.path / "results.csv").write_text(kept["results.csv"].replace(value, "8.5"))
    assert study.run() == 2
    assert "is not the one that this study draws" in study.text()


@pytest.mark.slow
def test_a_grid_runs_each_configuration_once_before_any_again(study):
    """Guards a benchmark that is half done: it shows all tasks, with fewer seeds."""
    del study.spec["configurations"]
    study.spec |= {"sampler": "grid", "seeds": 2, "choices": {"value": {"values": [1, 2]}}}
    assert study.run() == 0, study.text()
    started = [line.split()[-3] for line in study.text().splitlines() if " starts: " in line]
    assert started == ["0000-seed1", "0001-seed1", "0000-seed2", "0001-seed2"], study.text()


def test_several_runs_divide_the_gpus(study, tmp_path, monkeypatch):
    """Guards eight runs on eight GPUs, all of which would otherwise use the first two."""
    tools = tmp_path / "bin"
    tools.mkdir()
    listed = "echo 'GPU 0: H (UUID: GPU-a)'\necho 'GPU 1: H (UUID: GPU-b)'"
    stand_in(tools / "nvidia-smi", listed)
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    study.spec["configurations"] = 4
    study.spec["flags"]["inference_devices"] = "cpu:0"
    process = study.start("--parallel=3", behaviour="run")

    def gpu(number):
        wait_until(lambda: study.trains(number))
        pid = (study.logdir(number) / "learner.pid").read_text().strip()
        variables = pathlib.Path(f"/proc/{pid}/environ").read_text().split("\0")
        return dict(line.partition("=")[::2] for line in variables).get("CUDA_VISIBLE_DEVICES")

    first = [gpu(number) for number in range(3)]
    stop.stop(study.logdir(0))  # The fourth takes its place.
    assert [*first, gpu(3)] == ["GPU-a", "GPU-b", "GPU-a", "GPU-a"]
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 0, study.text()


def test_gpus_that_a_study_may_name_are_not_divided(monkeypatch):
    """Guards --training_devices, also in a file of flags: its numbers count all GPUs."""
    monkeypatch.setattr(nvidia, "visible_gpus", lambda: ["GPU-a", "GPU-b"])

    def shared(choices=(), **flags):
        choices = SPEC["choices"] | dict(choices)
        asked = spec.from_json({**SPEC, "flags": flags, "choices": choices})
        return runner._gpus_to_share(asked, parallel=3)

    assert shared() == ["GPU-a", "GPU-b"]
    assert shared({"flagfile": {"values": ["a.flags", "b.flags"]}}) == []
    assert shared(training_devices="/device:GPU:1") == shared(flagfile="its.flags") == []


def test_failures_are_reported_and_others_continue(study):
    """Guards against one bad configuration ending a study; only --retry_failed runs it again."""
    del study.spec["flags"]
    study.spec["choices"]["behaviour"] = {"values": ["end", "fail=2"]}
    study.spec["configurations"] = 6
    assert study.run("--parallel=3") == 1, study.text()
    rows = study.rows()
    bad = [row for row in rows if row["behaviour"] == "fail=2"]
    assert 0 < len(bad) < 6
    for row in rows:
        assert row["status"] == ("failed" if row in bad else "done")
    assert all("the port is in use" in row["note"] and row["performance"] == "" for row in bad)
    number = int(bad[0]["configuration"])
    assert f"failed: {study.logdir(number).name}: learner: the port is in use" in study.text()
    # A value that fails is the worst, not left out.
    worst = [row for row in study.rows("percentiles.csv") if row["value"] == "fail=2"]
    assert worst[0]["p95"] == "-inf" and worst[0]["best"] == "0"
    # Where nothing is left to run, nothing has run.
    record = json.loads((study.path / "study.json").read_text()) | {"machines": ["elsewhere"]}
    (study.path / "study.json").write_text(json.dumps(record))
    assert study.run() == 1
    assert study.starts(number) == ["fail=2"]
    assert json.loads((study.path / "study.json").read_text()) == record
    assert study.run("--retry_failed") == 1
    assert study.starts(number) == ["fail=2"] * 2


def test_a_killed_study_is_taken_over(study):
    """kill -9 of the study: the run saves by itself, and the next study resumes it."""
    first = study.start(behaviour="train")
    wait_until(study.trains)
    first.kill()
    first.wait()
    assert study.run() == 0, study.text()
    assert [row["status"] for row in study.rows()] == ["done"] * 2
    assert study.starts() == ["train", "end"]
    saved = checkpoint_list.list_checkpoints(study.logdir() / checkpoint_list.DIRECTORY)
    assert len(saved) == 2 and 0 < saved[0].step < saved[1].step  # Resumed, not started over.


def test_a_run_that_saves_already_is_not_asked_to_stop(tmp_path, spec_json, monkeypatch):
    """Guards its checkpoint: a second request means an exit without saving."""
    begun = directory.open_study(tmp_path, spec.from_json(spec_json))
    run, _ = begun.runs_of(begun.trials.ask())
    running, asked = [run.logdir], []
    monkeypatch.setattr(
        runner.run_lock, "running_pid", lambda logdir: 7 if logdir in running else None
    )
    monkeypatch.setattr(runner.stop, "stop", asked.append)
    monkeypatch.setattr(runner.time, "sleep", lambda seconds: running.clear())
    run.logdir.mkdir(parents=True)
    writer = progress.ProgressWriter(run.logdir, 1000)
    writer.update("saving", frames=1)
    runner.take_over(begun, lambda text: None)
    assert asked == [] and running == []
    running.append(run.logdir)
    writer.update("training", frames=1)
    runner.take_over(begun, lambda text: None)
    assert asked == [run.logdir]


def test_an_evaluation_of_another_length_is_repeated(tmp_path, spec_json, monkeypatch):
    """Guards means of one that was stopped, whose episodes are short, from a lower number."""
    asked = spec.from_json(spec_json | {"evaluation_episodes": 2})
    run, _ = (begun := directory.open_study(tmp_path, asked)).runs_of(begun.trials.ask())
    monkeypatch.setattr(type(run), "trained", True)
    run.logdir.mkdir(parents=True)
    for episodes in (1, 2, 3):
        record = {"actions": asked.evaluation_actions, "episodes": episodes * [{"score": 1.0}]}
        (run.logdir / directory.EVALUATION).write_text(json.dumps(record))
        assert run.done(asked) == (episodes == 2)
    assert run.done(without := dataclasses.replace(asked, evaluation_episodes=0))
    assert results.collect_run(run, without).cells["evaluation_mean"] == ""


def test_what_fails_is_bad_until_it_succeeds(tmp_path, spec_json):
    """Guards "tpe": it would forget the values of trials that are marked as failed."""
    begun = directory.open_study(tmp_path, spec.from_json(spec_json | {"seeds": 1}))
    begun.write()
    configuration = begun.trials.ask()
    (run,) = begun.runs_of(configuration)
    work = runner.Runner(begun, 1, False, mock.Mock())
    run.set_failure("no disk")
    work._tell(configuration)
    (trial,) = begun.trials._study.get_trials()
    assert trial.state.name == "RUNNING"
    run.set_failure(None)
    progress.ProgressWriter(run.logdir, 1000).update("done", frames=1000)
    work._tell(configuration)
    assert begun.trials._study.get_trials()[0].state.name == "RUNNING"  # No episode ended.
    (rated,) = results.performances([results.collect_run(run, begun.spec)])
    assert rated.value == -np.inf  # Not left out.
    log = ReturnsLog(run.logdir)
    log.add([EpisodeRow(900, 1.0, 5.0, 5.0, 9, 0, False)])
    log.flush()
    work._tell(configuration)
    assert begun.trials._study.get_trials()[0].state.name == "COMPLETE"


@pytest.mark.slow
def test_what_does_worse_is_pruned(study):
    """The bad ones would train forever; a pruned one saves, counts as it was, and stays pruned."""
    study.spec["flags"] = {}
    study.spec["choices"] = {
        "behaviour": {"values": ["end", "train"]},
        "good": {"flag": "value", "uniform": [8, 9], "if": {"behaviour": "end"}},
        "bad": {"flag": "value", "uniform": [1, 2], "if": {"behaviour": "train"}},
    }
    study.spec |= {"configurations": 4, "seeds": 2, "sampling_seed": 1}
    study.spec["pruner"] = {"median": {"n_startup_trials": 1, "n_warmup_steps": 0}}
    assert study.run() == 0, study.text()
    rows = study.rows()
    assert rows[0]["status"] == "done"  # Chosen by the sampling seed: there is a median to beat.
    for row in rows:
        # A good one may report before it ends, and be worse than a better one.
        assert row["status"] in (["done", "pruned"] if row["behaviour"] == "end" else ["pruned"])
        if row["behaviour"] == "train" or row["status"] == "done":
            assert bool(row["performance"]) == (row["status"] == "done" or row["seed"] == "1")
    (number, *_) = [int(row["configuration"]) for row in rows if row["behaviour"] == "train"]
    assert checkpoint_list.saved_frames(study.logdir(number)) is not None
    assert study.run() == 0 and study.starts(number) == ["train"]


@pytest.mark.slow
def test_a_stopped_study_is_saved_and_resumes(study):
    process = study.start(behaviour="train")
    wait_until(study.trains)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0, study.text()
    assert "stopped; the same command resumes the study" in study.text()
    assert [row["status"] for row in study.rows()] == ["stopped"]  # The other is not drawn yet.
    saved = checkpoint_list.saved_frames(study.logdir())
    assert saved and run_lock.running_pid(study.logdir()) is None
    assert study.run() == 0
    assert [row["status"] for row in study.rows()] == ["done"] * 2
    assert checkpoint_list.saved_frames(study.logdir()) > saved


def test_ctrl_c_twice_does_not_wait(study):
    """The learner ignores the first; the second ends everything without a checkpoint."""
    process = study.start(behaviour="deaf")
    wait_until(study.trains)
    process.send_signal(signal.SIGINT)
    wait_until(lambda: "stopping: runs save checkpoints" in study.text())
    wait_until(lambda: "stopping: saving" in (study.path / "logs/0000-seed1.log").read_text())
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 0, study.text()
    assert "exiting without saving" in study.text()
    assert checkpoint_list.saved_frames(study.logdir()) is None
    wait_until(lambda: run_lock.running_pid(study.logdir()) is None)


def test_one_study_per_directory_of_one_spec(study):
    process = study.start(behaviour="train")
    wait_until(study.trains)
    assert study.run() == 2
    assert "error: A study is active in" in study.text()
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 0
    study.spec["choices"]["value"]["uniform"] = [1, 8]
    study.spec["frames"] = 40
    assert study.run() == 2
    message = "frames was 30, is now 40; choices.value.uniform was [1.0, 9.0], is now [1.0, 8.0]"
    assert message in study.text()
    # Also where results.csv, written when the study stopped, lacks the column.
    study.spec["choices"]["discounting"] = {"uniform": [0.9, 1]}
    assert study.run() == 2
    assert "choices.discounting was not given" in study.text()
    assert study.starts() == ["train"]


def test_a_full_disk_is_a_user_error(study, capsys, monkeypatch):
    """Guards against a traceback after days."""
    study.file.write_text(json.dumps(study.spec))
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(trials.Trials, "ask", mock.Mock(side_effect=full))
    monkeypatch.setattr(runner, "check", lambda study, say: None)
    assert program.main([str(study.file), f"--logdir={study.path}"]) == 2
    message = f"Cannot write to {study.path}: No space left on device. Free some space and repeat"
    assert message in capsys.readouterr().err


def test_a_run_that_is_trained_is_not_pruned(tmp_path, spec_json, monkeypatch):
    """Guards its score, which an evaluation has yet to give."""
    begun = directory.open_study(tmp_path, spec.from_json(spec_json | {"pruner": "median"}))
    begun.write()
    work = runner.Runner(begun, 1, False, mock.Mock())
    run, _ = begun.runs_of(begun.trials.ask())
    monkeypatch.setattr(begun.trials, "prune", lambda number: True)
    work._running[run] = mock.MagicMock()
    monkeypatch.setattr(type(run), "trained", True)
    work._prune()
    assert not work._stopping


def test_a_directory_of_something_else_is_refused(study, capsys):
    """Guards advice that the program refuses, of which `./run_local.sh --seeds=N` is another."""
    study.path.mkdir()
    (study.path / "thesis.tex").write_text("")
    study.file.write_text(json.dumps(study.spec))
    of_seeds = ["seeds", "gym", "vtrace", "1", "8", "--env_name=CartPole-v1", "--seeds=3"]
    of_seeds += ["--total_environment_frames=9", f"--logdir={study.path}"]
    ways = [[str(study.file), f"--{flag}={study.path}"] for flag in ("logdir", "directory")]
    for line in (*ways, of_seeds):  # "directory" is an older name.
        assert program.main(line) == 2
        assert "has files, but no study. " in (message := capsys.readouterr().err)
        assert "another directory with --logdir=DIR" in message


def test_the_home_directory_may_be_named(study, capsys, monkeypatch, tmp_path):
    """Guards a directory of the name ~, as shells do not expand --logdir=~/study."""
    monkeypatch.setenv("HOME", str(tmp_path))
    study.file.write_text(json.dumps(study.spec))
    assert program.main([str(study.file), "--logdir=~/mine", "--results_only"]) == 2
    assert f"There is no study in {tmp_path}/mine." in capsys.readouterr().err


def test_a_study_killed_at_its_start_begins_again(tmp_path, spec_json, monkeypatch):
    """Guards its directory, which had files but no study."""
    begun = directory.open_study(tmp_path / "study", spec.from_json(spec_json))
    with monkeypatch.context() as patch:
        patch.setattr(directory.Study, "draw_recorded", mock.Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            begun.write()
    again = directory.open_study(begun.path, begun.spec)
    again.write()
    assert directory.read(begun.path)["spec"] == spec.to_json(begun.spec)


def test_a_wrong_flag_is_told_before_anything_runs(study, capsys):
    """The real main program checks the flags of a configuration."""
    study.spec["flags"] = {"env_name": "CartPole-v1", "lerning_rate": 1}
    study.spec["choices"] = {"entropy_cost": {"uniform": [0, 1]}}
    study.file.write_text(json.dumps(study.spec))
    assert program.main([str(study.file), f"--logdir={study.path}"]) == 2
    message = capsys.readouterr().err
    assert "error: With entropy_cost=0." in message and "lerning_rate" in message
    assert not (study.path / "study.json").exists(), "the mended spec would be another's"


def test_without_matplotlib_there_is_a_table(study, capsys, monkeypatch):
    assert study.run() == 0
    (study.path / "results.csv").unlink()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    arguments = [str(study.file), f"--logdir={study.path}", "--results_only"]
    assert program.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "No plots: " in printed and "packages that are missing" in printed
    assert len(study.rows()) == 2 and len(study.rows("percentiles.csv")) == 4


@pytest.mark.nightly
def test_the_example_of_the_repository(repository, tmp_path):
    """Real learners and actors, gin bindings, from the spec to the plots."""
    command = ["-m", "seed_rl.study", "studies/toy_ppo.json"]
    command += [f"--logdir={tmp_path}/study", "--parallel=2"]
    run_python(*command, code=0, cwd=repository, timeout=1500)
    with open(tmp_path / "study/results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5
    for row in rows:
        assert row["status"] == "done" and float(row["frames_per_s"]) > 0
        # Chance is 1, the optimum 3; averages over runs that have just learned are near 1.2.
        assert 1.1 < float(row["performance"]) < 3
        clipped = row["policy_loss"] == "@ppo()"
        assert [row[name] != "" for name in ("epsilon", "beta", "w_max")] == [
            clipped,
            not clipped,
            not clipped,
        ]
        logdir = tmp_path / f"study/runs/{int(row['configuration']):04d}-seed1"
        recorded = (logdir / "operative_config.gin").read_text()
        assert f"policy_loss = {row['policy_loss']}" in recorded
        assert f"lambda_ = {row['lambda']}\n" in recorded
    assert {row["policy_loss"] for row in rows} == {"@ppo()", "@awr()"}
    plots = {path.name for path in (tmp_path / "study/plots").iterdir()}
    names = ("learning_rate", "lambda", "policy_loss", "epsilon", "beta", "w_max")
    assert plots == {f"{name}.png" for name in names}
