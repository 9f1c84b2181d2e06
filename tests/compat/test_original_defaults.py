"""Defaults and flags of programs and scripts written for the original."""

import json
import re

import pytest

from seed_rl.agents.r2d2 import program
from seed_rl.compat import old_flags, original_defaults
from tests.helpers import PROGRAMS, run_python

COMMON, ON_POLICY = "common.common_flags", "agents.policy_gradient.learner_flags"


def options_of(forks, imports, *arguments, names=()):
    """Values and origins of options, and the program's standard error."""
    program = PROGRAMS / "existing_defaults.py"
    done = forks.run(program, imports, ",".join(names), *arguments, code=0)
    values, origins = json.loads(done.stdout.splitlines()[-1])
    return values, origins, done.stderr


@pytest.mark.parametrize(
    ("imports", "preset"),
    [
        (f"agents.vtrace.learner,{COMMON}", original_defaults.VTRACE),
        (f"{COMMON},agents.r2d2.learner,atari.env", original_defaults.R2D2),
        (f"{COMMON},agents.sac.learner", original_defaults.SAC),
        (f"{ON_POLICY},{COMMON}", original_defaults.ON_POLICY),
    ],
)
def test_existing_programs_have_the_defaults_of_the_original(forks, imports, preset):
    """Whatever the order of imports; each value has its origin."""
    values, origins, _ = options_of(forks, imports, names=preset.values)
    assert values == preset.values
    assert set(origins.values()) == {"original program preset"}
    assert {"unroll_length", "save_checkpoint_secs"} <= set(origins)


def test_flags_of_existing_on_policy_scripts(forks):
    """Sizes of 0 are derived, and `common_flags` does not make them those of other agents; a flag
    that the program defines keeps the program's meaning.
    """
    given = dict(batch_size=0, batches_per_step=0, clip_norm=0.5, num_envs=8, polyak=0.25)
    arguments = [f"--{name}={value}" for name, value in given.items()]
    imports = f"{ON_POLICY},{COMMON},--polyak"
    values, origins, errors = options_of(forks, imports, *arguments, names=given)
    assert values == given and origins["clip_norm"] == "command line" and "note" not in errors


@pytest.mark.parametrize(
    ("main", "arguments", "expected", "notes"),
    [
        (
            "mujoco.sac_main",
            ["--polyak=0.99", "--n_mlp_layers=3", "--mlp_size=64", "--unroll_queue_max_size=7"]
            + ["--lstm_size=32", "--n_lstm_layers=2", "--lr_decay_multiplier=0"]
            + ["--num_saved_models=0", "--save_model", "--render"],
            dict(target_update_tau=0.01, mlp_sizes=[64] * 3, unroll_queue_size=7)
            | dict(lstm_sizes=[32, 32], learning_rate_decay=True, save_model=True),
            [
                "--polyak=0.99 sets --target_update_tau=0.01",
                "--num_saved_models=0 is ignored: --save_model=true is also set",
                "--render=true has no effect here: `seed-rl play",
            ],
        ),
        (
            "mujoco.ppo_main",
            ["--step_size_unroll=8", "--batches_per_step=4", "--mlp_size=4"],
            dict(batch_size=2, mlp_sizes=[4, 4]),
            ["--mlp_size=4 sets --mlp_sizes=4,4"],
        ),
    ],
)
def test_flags_of_existing_scripts_mean_what_they_meant(main, arguments, expected, notes):
    """Each that is accepted has an effect, or one line says why it has none."""
    done = run_python(PROGRAMS / "effective_options.py", f"seed_rl.{main}", *arguments)
    values, *_ = json.loads(done.stdout)
    assert {name: values[name] for name in expected} == expected
    assert not [note for note in notes if f"note: {note}" not in done.stderr], done.stderr
    assert not set(old_flags.TABLE) & set(values)  # Nor in the record of a run.


def test_sizes_of_existing_scripts_that_do_not_divide():
    command = ("-m", "seed_rl.mujoco.ppo_main", "--batches_per_step=4", "--step_size_unroll=9")
    message = "--step_size_unroll=9 cannot be divided by --batches_per_step=4"
    assert message in run_python(*command, code=2).stderr


def test_the_page_lists_the_defaults_and_flags(repository):
    """Guards docs/migrating.md: owners of old programs compare its numbers with theirs."""
    page = (repository / "docs" / "migrating.md").read_text().partition("\n## Defaults\n")[2]
    tables, _, old = page.partition("\n## Flags of existing scripts\n")
    words = {"none": None, "false": False}
    every, *agents = [
        {
            name: words.get(value, value) if value.isalpha() else float(value)
            for name, value in re.findall(
                r"^\| `(\w+)`[^|]*\|[^|]*\| ([\w.-]+)", part, re.MULTILINE
            )
        }
        for part in tables.split("\n### ")
    ]
    names = (original_defaults.VTRACE, original_defaults.R2D2, original_defaults.SAC)
    for preset, listed in zip((*names, original_defaults.ON_POLICY), agents, strict=True):
        assert {**every, **listed} == preset.values
    r2d2 = tables.partition("\n### R2D2\n")[2].partition("\n### ")[0]
    ours = dict(re.findall(r"^\| `(\w+)`.* \| ([\d.]+) \|$", r2d2, re.MULTILINE))
    shared = ours.keys() & program.PRESET.values.keys()
    assert len(shared) >= 8
    assert all(float(ours[name]) == program.PRESET.values[name] for name in shared)
    listed = re.findall(r"^\| (`.*?) \|", old.partition("\n## ")[0], re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(listed))) == {*old_flags.TABLE, "clip_norm"}
