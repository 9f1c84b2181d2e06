"""Configurations as trials of Optuna: kept on disk, improved."""

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend

from seed_rl.common.errors import UserError
from seed_rl.study import spec as spec_lib
from seed_rl.study import trials
from seed_rl.study.spec import Method
from seed_rl.study.trials import Trials


@pytest.fixture
def spec(spec_json):
    return spec_lib.from_json(spec_json)


def test_a_resumed_study_draws_what_an_uninterrupted_one_would(spec, tmp_path):
    path = tmp_path / "journal"
    for number in range(4):
        assert Trials(spec, path).ask().number == number
    assert Trials(spec, path).configurations() == trials.preview(spec)[:4]


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_a_configuration_is_drawn_as_a_whole_or_not_at_all(change, tmp_path, sampler):
    """Guards a study killed at any line of its journal, or within one, from other values."""
    spec = spec_lib.from_json(change(sampler, "sampler"))
    path = tmp_path / "journal"
    drawn = [Trials(spec, path).ask() for _ in range(2)]
    lines = path.read_bytes().splitlines(keepends=True)
    for kept in range(1, len(lines)):
        path.write_bytes(b"".join(lines[:kept]) + lines[kept][:10])
        trials.drop_torn_line(path)
        resumed = Trials(spec, path)
        while len(resumed.configurations()) < 2:
            resumed.ask()
        assert Trials(spec, path).configurations() == drawn


def test_a_damaged_journal_is_a_user_error(spec, tmp_path):
    path = tmp_path / "journal"
    path.write_text("no json\n{}\n")
    with pytest.raises(UserError, match="journal is damaged .*Restore it, or choose another"):
        Trials(spec, path)
    # A trial of another program.
    path.unlink()
    Trials(spec, path)
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(path)))
    optuna.load_study(study_name=None, storage=storage).ask()
    with pytest.raises(UserError, match="journal is damaged .a configuration without values"):
        Trials(spec, path)


def test_a_sampler_that_learns(spec, change):
    """TPE, told that high learning rates are good, proposes them; random does not."""

    def late_mean(sampler):
        asked = Trials(spec_lib.from_json(change(sampler, "sampler")))
        rates = []
        for _ in range(40):
            configuration = asked.ask()
            rates.append(configuration.values["learning_rate"])
            asked.tell(configuration.number, rates[-1])
        return sum(rates[20:]) / 20

    assert late_mean({"tpe": {"n_startup_trials": 10}}) > 1.5 * late_mean("random")


def test_a_grid_has_each_combination_once(spec_json, tmp_path):
    """The protocol of a benchmark: tasks x seeds; also with choices that exist in some."""
    del spec_json["configurations"]
    spec_json |= {"sampler": "grid", "seeds": 3}
    spec_json["choices"] = {
        "advantage": {"gin": "Loss.advantage", "values": ["@GAE()", "@NStep()"]},
        "n": {"gin": "NStep.n", "values": [1, True], "if": {"advantage": "@NStep()"}},
        "lr": {"flag": "learning_rate", "values": [0.1, 0.2]},
    }
    spec = spec_lib.from_json(spec_json)
    for _ in range(spec.configurations):
        Trials(spec, tmp_path / "journal").ask()
    drawn = Trials(spec, tmp_path / "journal").configurations()
    assert [tuple(c.values.values()) for c in drawn] == [
        *(("@GAE()", 0.1), ("@GAE()", 0.2), ("@NStep()", 1, 0.1), ("@NStep()", 1, 0.2)),
        *(("@NStep()", True, 0.1), ("@NStep()", True, 0.2)),
    ]
    assert drawn == trials.preview(spec)
    with pytest.raises(UserError, match='has 6 points; "configurations" is 7'):
        spec_lib.from_json({**spec_json, "configurations": 7})
    spec_json["choices"]["lr"] = {"flag": "learning_rate", "uniform": [0, 1]}
    with pytest.raises(UserError, match='give "lr" "values" instead of "uniform"'):
        spec_lib.from_json(spec_json)


@pytest.mark.parametrize("which", ["sampler", "pruner"])
def test_options_that_optuna_does_not_know(spec_json, which):
    spec_json[which] = {"tpe" if which == "sampler" else "median": {"startup": 1}}
    with pytest.raises(UserError, match="Optuna refuses the options .*startup"):
        Trials(spec_lib.from_json(spec_json))


def test_only_what_is_worse_than_others_at_the_same_time_is_pruned(spec, change):
    pruner = {"median": {"n_startup_trials": 2, "n_warmup_steps": 1}}
    study = Trials(spec_lib.from_json(change(pruner, "pruner")))
    for level in (1.0, 2.0, 3.0):
        number = study.ask().number
        study.report(number, [level] * 3)
        study.tell(number, level)
    bad, good, early = (study.ask().number for _ in range(3))
    for number, curve in ((bad, [1.0, 1.0]), (good, [1.0, 2.5]), (early, [1.0])):
        study.report(number, curve)
    assert [study.prune(number) for number in (bad, good, early)] == [True, False, False]
    assert [c.pruned for c in study.configurations()] == [False] * 3 + [True, False, False]
    study.report(bad, [1.0] * 3)  # Of a run that was resumed by hand: not an error.
    assert Method("none") == spec.pruner and not study.prune(bad)
