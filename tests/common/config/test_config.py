"""Flags generated from typed options, in real programs."""

import dataclasses

import numpy as np
import pytest
from absl import flags

from seed_rl.common.config import options
from seed_rl.common.config.flag_parsers import WholeNumberParser
from seed_rl.common.config.options import option
from seed_rl.common.system import flag_files, shipped
from tests.helpers import PROGRAMS, run_python


def run(*arguments):
    return run_python(PROGRAMS / "options_program.py", *arguments)


def test_flags_become_the_configuration():
    """Guards types, aliases, lists and a program's own defaults; and the record of a run from an
    alias that takes the place of what was given.
    """
    result = run("--width=2", "--sizes=1e3,20", "--label-name=x", "--round", "--kind=ball")
    shown, *_, recorded = result.stdout.splitlines()
    assert shown == (
        "Shape(width=2.0, sizes=(1000, 20), name='x', round=True, kind='ball') Other(depth=7)"
    )
    assert recorded == "depth kind name round sizes width", result.stderr


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--width=-1", "width"),
        ("--width=nan", "a finite number is needed"),
        ("--sizes=a", "sizes"),
        ("--depth=1.5", "a whole number is needed, such as 1000000 or 1e6"),
        ("--depth=0", "depth"),
        ("--kind=cone", "kind"),
        ("--widht=1", "widht"),
        ("stray", "stray"),
        ("--flagfile=", "--flagfile= has no file name"),
        ("--name=bad", "Choose another --name."),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_code_2(argument, message):
    """Guards that user errors never end in a traceback."""
    result = run(argument)
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("form", [["--flagfile={}"], ["-flagfile={}"], ["--flagfile", "{}"]])
def test_flag_files_of_the_package_are_found_from_anywhere(tmp_path, monkeypatch, form):
    monkeypatch.chdir(tmp_path)
    name = "seed_rl/football/workstation.flags"
    read = [flag for flag, _ in flag_files.expanded([part.format(name) for part in form])]
    assert read and set(read) <= set((shipped.LAYOUT / name).read_text().splitlines())


def test_whole_numbers_as_people_write_them():
    written = {"1e6": 1_000_000, "1_000": 1000, "2.5E3": 2500, "7": 7}
    assert {text: WholeNumberParser().parse(text) for text in written} == written


@pytest.mark.parametrize("given", ["1.5", "1e-2", "2.55e1", "many", "1e9999", "e6", ""])
def test_what_is_no_whole_number_is_refused(given):
    with pytest.raises(ValueError, match="a whole number is needed, such as 1000000 or 1e6"):
        WholeNumberParser().parse(given)


def test_help_groups_options_by_class():
    result = run("--help")
    assert result.returncode == 0
    first, second = result.stdout.index("Shape: what it looks like"), result.stdout.index("Other:")
    assert first < result.stdout.index("--width") < second < result.stdout.index("--depth")
    assert "(default: '7')" in result.stdout


def test_two_classes_with_one_option_are_a_bug_of_ours():
    @dataclasses.dataclass(frozen=True)
    class A:
        """A"""

        twice: int = option(1, "")

    @dataclasses.dataclass(frozen=True)
    class B:
        """B"""

        twice: int = option(1, "")

    with pytest.raises(ValueError, match="twice"):
        options.define_flags(A, B)


@dataclasses.dataclass(frozen=True)
class Checked(options.Checked):
    """Options of these tests."""

    count: int = option(1, "", minimum=1, maximum=10)
    cost: float | None = option(None, "", minimum=0)
    kind: str = option("a", "", choices=("a", "b"))
    sizes: tuple[int, ...] = option((1,), "", minimum=1)
    really: bool = option(False, "")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict(count=2.5), "Checked.count must be a whole number, not 2.5"),
        (dict(count=True), "Checked.count must be a whole number, not True"),
        (dict(count=0), "Checked.count must be at least 1, not 0"),
        (dict(count=1.1e1), "Checked.count must be at most 10, not 11"),
        (dict(count=float("nan")), "Checked.count must be a whole number, not nan"),
        (dict(count=None), "Checked.count must be a whole number, not None"),
        (dict(cost="high"), "Checked.cost must be a finite number, not 'high'"),
        (dict(cost=float("nan")), "Checked.cost must be a finite number, not nan"),
        (dict(kind="c"), "Checked.kind must be one of a, b, not 'c'"),
        (dict(kind=1), "Checked.kind must be a string, not 1"),
        (dict(sizes=(1, 0)), "Checked.sizes must be at least 1, not 0"),
        (dict(sizes=3), "Checked.sizes must be a tuple, not 3"),
        (dict(really=1), "Checked.really must be True or False, not 1"),
    ],
)
def test_options_are_checked_without_flags(given, message):
    """Guards programs that construct options, and found out after the run had started."""
    with pytest.raises(options.UserError, match=message):
        Checked(**given)


def test_options_are_converted_without_flags():
    """Guards 2e4 frames, and NumPy's numbers, which JSON refuses."""
    given = Checked(count=1e1, cost=np.float32(2), sizes=[np.int64(3)])
    assert given == Checked(10, 2.0, "a", (3,))
    assert [type(v) for v in (given.count, given.cost, given.sizes[0])] == [int, float, int]


def test_a_shared_option_has_one_default_for_all_its_classes():
    """Guards `num_action_repeats`: an environment sets its default, the learner counts by it."""

    @dataclasses.dataclass(frozen=True)
    class Run:
        """Run: options."""

        repeats_of_this_test: int = options.option(1, "Text.")

    @dataclasses.dataclass(frozen=True)
    class Environment:
        """Environment: options."""

        repeats_of_this_test: int = options.option(4, "Text.", shared=True)

    options.define_flags(Run, Environment)
    flags.FLAGS.mark_as_parsed()
    assert options.from_flags(Run) == Run(4)
    assert options.from_flags(Environment) == Environment(4)
