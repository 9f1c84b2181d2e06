"""Flags that come with imports."""

import dataclasses
import types

import pytest
from absl import flags
from absl.testing import flagsaver

from seed_rl.atari.env import AtariConfig
from seed_rl.common.config import options
from seed_rl.compat.imported_flags import as_config, provide
from seed_rl.compat.programs import with_typed_options
from tests.helpers import PROGRAMS, run_python


@pytest.mark.parametrize(
    ("before", "after", "batch_size"),
    [
        ("nothing", "nothing", 32),
        ("flag", "nothing", 3),
        ("nothing", "flag", 3),
        ("class", "nothing", 3),
        ("nothing", "class", 3),
    ],
)
def test_flags_come_with_the_imports_and_give_way_to_the_program(before, after, batch_size):
    """Guards each order of definitions."""
    options = ["--run_mode=actor", "--job-dir=/x", "--task=2", "--game=Breakout"]
    result = run_python(PROGRAMS / "existing_flags.py", before, after, *options)
    assert result.stdout.splitlines() == [f"actor {batch_size} /x 2 Breakout", "4 Breakout"], (
        result.stderr
    )


def test_two_definitions_of_a_program_are_still_an_error():
    result = run_python(PROGRAMS / "existing_flags.py", "flag", "class")
    assert "DuplicateFlagError" in result.stderr


def test_user_errors_end_existing_programs_with_one_line():
    program = """
from absl import app
from seed_rl.common import common_flags  # Brings flags.
from seed_rl.common.errors import UserError
def main(_):
    raise UserError("Choose another --logdir.")
app.run(main)
"""
    result = run_python("-c", program)
    assert (result.returncode, result.stderr) == (2, "error: Choose another --logdir.\n")


def test_as_config_takes_what_existing_programs_pass():
    known = AtariConfig(game="Qbert")
    assert as_config(AtariConfig, known) is known
    assert as_config(AtariConfig, {"game": "Qbert", "other": 1}) == known
    assert as_config(AtariConfig, types.SimpleNamespace(game="Qbert")) == known
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    with flagsaver.flagsaver(game="Qbert"):
        assert as_config(AtariConfig, None).game == "Qbert"


def test_flags_of_another_family_do_not_change_an_options_default():
    """Guards processes that import several families, each with an option of the same name."""

    @dataclasses.dataclass(frozen=True)
    class One:
        """One: options."""

        level_of_this_test: str = options.option("one", "Text.")

    @dataclasses.dataclass(frozen=True)
    class Other:
        """Other: options."""

        level_of_this_test: str = options.option("other", "Text.")

    provide(One)
    provide(Other)
    flags.FLAGS.mark_as_parsed()
    assert options.from_flags(One) == One("one")
    assert options.from_flags(Other) == Other("other")
    with flagsaver.flagsaver(level_of_this_test="given"):
        assert options.from_flags(Other) == Other("given")


def test_the_default_of_a_preset_wins_in_any_order():
    """Guards SAC's batch size: `common_flags`, imported after it, made it that of other agents."""

    @dataclasses.dataclass(frozen=True)
    class Learner:
        """Learner: options."""

        size_of_this_test: int = options.option(32, "Number.")
        length_of_this_test: int = options.option(20, "Number.")

    flags.FLAGS.unparse_flags()  # By other tests.
    provide(Learner, presets=[options.Preset("a", {"size_of_this_test": 256})])
    provide(Learner, presets=[options.Preset("b", {"length_of_this_test": 1})])
    flags.FLAGS.mark_as_parsed()
    assert options.from_flags(Learner) == Learner(256, 1)


def test_any_object_reaches_environments_and_its_names_identify_the_run():
    own = types.SimpleNamespace(game="Pong", learning_rate=1)
    create, typed = with_typed_options(lambda env_id, config: (env_id, config), own)
    assert create(3, typed) == (3, own)
    assert options.environment_identity(typed) == {"game": "Pong"}
    assert with_typed_options(create, AtariConfig()) == (create, AtariConfig())
