"""docs/results: what is written there by a program is what the data say."""

import pathlib
import shutil

import pytest

from seed_rl.study import program

RESULTS = pathlib.Path(__file__).parents[1] / "docs/results"
STUDIES = sorted(path.parent.name for path in RESULTS.glob("*/study.json"))


def test_there_are_studies():
    assert STUDIES


@pytest.mark.parametrize("name", STUDIES)
def test_tables_are_those_of_the_data(name, tmp_path):
    """Guards the page from edits by hand, and from data that changed without it."""
    shutil.copytree(RESULTS / name, tmp_path / name)
    page = tmp_path / "README.md"
    shutil.copy(RESULTS / "README.md", page)
    references = f"--references={RESULTS / 'references.csv'}"
    arguments = ["aggregate", str(tmp_path / name), references, f"--page={page}"]
    assert program.main(arguments) == 0
    assert page.read_text() == (RESULTS / "README.md").read_text()
