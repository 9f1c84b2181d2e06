"""Specs: what is accepted, and the message about each mistake."""

import json
import re

import pytest

from seed_rl.common.errors import UserError
from seed_rl.study import spec as spec_lib
from tests.study.conftest import SPEC


def test_a_spec_survives_being_written_and_read(spec_json):
    """Guards study.json, against which a resumed study is compared."""
    spec = spec_lib.from_json(spec_json)
    assert spec.performance.measure == "average" and spec.performance.intervals == 20
    written = json.loads(json.dumps(spec_lib.to_json(spec)))
    assert spec_lib.from_json(written) == spec
    assert json.loads(json.dumps(spec_lib.to_json(spec_lib.from_json(written)))) == written


def test_the_specs_of_the_repository_are_right(repository):
    paths = sorted((repository / "studies").glob("*.json"))
    assert {path.stem for path in paths} >= {"cartpole_vtrace", "toy_ppo"}
    for path in paths:
        assert spec_lib.load(path).configurations > 0


CHOICE = ("choices", "learning_rate")
MISTAKES = [
    (1, ("frame",), 'has no "frame"; did you mean "frames"?'),
    (0, ("frames",), '"frames" must be at least 1, not 0'),
    (1.5, ("seeds",), '"seeds" must be a whole number, not 1.5'),
    ("four", ("actors",), '"actors" must be a whole number, not "four"'),
    (True, ("actors",), '"actors" must be a whole number, not true'),
    ("gim", ("game",), "Unknown game 'gim'; choose from: "),
    ("ppp", ("agent",), "gym has no agent 'ppp'; choose from: "),
    ({}, ("choices",), '"choices" is empty'),
    ({"log_uniforn": [1, 2]}, CHOICE, 'has no "log_uniforn"; did you mean "log_uniform"'),
    ({"flag": "lr"}, CHOICE, "give exactly one of values, uniform, log_uniform, integers"),
    ({"values": [1], "uniform": [0, 1]}, CHOICE, "has values and uniform; give exactly one"),
    ({"values": [1], "flag": "a", "gin": "b.c"}, CHOICE, 'has both "flag" and "gin"'),
    ({"values": []}, CHOICE, '"values" must be a non-empty list'),
    ({"values": [1, 2, 1]}, CHOICE, "1 is listed twice"),
    ({"values": [None]}, CHOICE, "must be a number, a string, true or false, not null"),
    ({"uniform": [1]}, CHOICE, "must be [lowest, highest]"),
    ({"uniform": [2, 1]}, CHOICE, "the lowest must be below the highest, but 2.0 >= 1.0"),
    ({"integers": [1, 2.5]}, CHOICE, "must be a whole number, not 2.5"),
    ({"integers": [0, 10**400]}, CHOICE, "must be between -2^53 and 2^53, not 1000"),
    ({"uniform": [0, 10**400]}, CHOICE, "must be a number, not 1000"),
    ({"values": ["a\0b"]}, CHOICE, r'must be of printable characters, not "a\u0000b"'),
    ({"values": ["1\nGAE.lambda_ = 0"]}, CHOICE, "must be of printable characters"),
    ({"values": ["\ud800"]}, CHOICE, r'must be of printable characters, not "\ud800"'),
    ({"log_uniform": [0, 1]}, CHOICE, "log-uniform ranges are above 0"),
    ({"values": [1], "flag": "--lr"}, CHOICE, 'write the flag\'s bare name, "lr"'),
    ({"values": [1], "flag": "seed"}, CHOICE, 'a study sets --seed itself; set "seeds"'),
    ({"values": [1], "gin": "GAE.lambda_ = 1"}, CHOICE, "is not a gin parameter"),
    ({"values": [1], "flag": "env_name"}, CHOICE, "--env_name is both fixed and sampled"),
    ({"values": [1], "flag": "unroll_length"}, CHOICE, "both set --unroll_length; give them an"),
    ({"values": [1], "if": {"unroll_length": 5}}, CHOICE, '"unroll_length" must come first'),
    (3, ("flags", "seeds"), 'a study sets --seeds itself; set "seeds" beside "flags"'),
    (2, ("flags", "at_once"), "a study sets --at_once itself; seed-rl study --parallel=N"),
    (
        8686,
        ("flags", "expose"),
        "a study sets --expose itself; its runs only have actors of their own",
    ),
    (2, ("flags", "learners"), "a study sets --learners itself; each run has one"),
    ("runs/x", ("flags", "logdir"), "a study sets --logdir itself; each run has its own"),
    ({"measure": "mean"}, ("performance",), 'no measure "mean"; '),
    ({"interval": 3}, ("performance",), 'did you mean "intervals"?'),
    ({"score": 1}, ("performance",), '"score" must be true or false, not 1'),
    ({"values": [1]}, ("choices", "episodes"), '"episodes" is a column of results.csv'),
    (5, ("flags", "frames"), 'a study sets --frames itself; set "frames"'),
    (0.1, ("flags", "lr"), "--learning_rate is both fixed and sampled"),
    ({"lr": 1, "learning_rate": 2}, ("flags",), '"flags" sets --learning_rate under two names'),
    ("samples", ("evaluation_actions",), 'no actions "samples"; did you mean "sampled"?'),
    ("tpd", ("sampler",), '"sampler" has no "tpd"; did you mean "tpe"?'),
    ({"median": {}, "none": {}}, ("pruner",), '"pruner" must be one of none, median, '),
]


@pytest.mark.parametrize(("value", "path", "message"), MISTAKES)
def test_mistakes_are_told_with_their_mend(change, value, path, message):
    with pytest.raises(UserError, match=re.escape(message)):
        spec_lib.from_json(change(value, *path))


CONDITIONS = [
    ({"advantag": "@GAE()"}, 'no choice "advantag"; did you mean "advantage"?'),
    ({"learning_rate": 0.01}, '"learning_rate" is a range; conditions need a list of values'),
    ({"advantage": "@VTrace()"}, 'is never "@VTrace()", only "@GAE()", "@NStep()"'),
]


@pytest.mark.parametrize(("condition", "message"), CONDITIONS)
def test_wrong_conditions(change, condition, message):
    spec_json = change(condition, "choices", "gae_lambda", "if")
    with pytest.raises(UserError, match=re.escape(message)):
        spec_lib.from_json(spec_json)


@pytest.mark.parametrize("name", ["game", "agent", "frames", "configurations", "choices"])
def test_what_is_needed(spec_json, name):
    del spec_json[name]
    with pytest.raises(UserError, match=f'"{name}" is missing'):
        spec_lib.from_json(spec_json)


def test_two_choices_may_set_one_flag_if_they_exclude_each_other(change):
    """Learning rates of different optimizers are different options."""
    condition = {"advantage": ["@NStep()"]}
    other = {"values": [1.0], "gin": "GAE.lambda_", "if": condition}
    assert len(spec_lib.from_json(change(other, "choices", "other")).choices) == 5
    condition["advantage"] = ["@GAE()", "@NStep()"]
    with pytest.raises(UserError, match="both set GAE.lambda_"):
        spec_lib.from_json(change(other, "choices", "other"))


def test_files(tmp_path):
    path = tmp_path / "spec.json"
    with pytest.raises(UserError, match="Cannot read the spec"):
        spec_lib.load(path)
    path.write_text(json.dumps(SPEC))
    assert spec_lib.load(path) == spec_lib.from_json(SPEC)
    path.write_text('{"frames": 1, "frames": 2}')
    with pytest.raises(UserError, match='"frames" occurs twice'):
        spec_lib.load(path)
    path.write_text("{,}")
    with pytest.raises(UserError, match="not valid JSON"):
        spec_lib.load(path)
    path.write_text("[]")
    with pytest.raises(UserError, match="must be a JSON object"):
        spec_lib.load(path)
