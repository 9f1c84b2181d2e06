"""docs/results: what is written there by a program is what the data say."""

import json
import pathlib
import shutil

import pytest

from seed_rl.study import program

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "docs/results"


def test_tables_are_those_of_the_data(tmp_path):
    """Guards the page from edits by hand, and from data that changed without it."""
    copy = tmp_path / "results"
    shutil.copytree(RESULTS, copy)
    studies = sorted(str(path.parent) for path in copy.glob("*/study.json"))
    assert studies
    page, references = copy / "README.md", f"--references={copy / 'references.csv'}"
    assert program.main(["aggregate", *studies, references, f"--page={page}"]) == 0
    assert page.read_text() == (RESULTS / "README.md").read_text()


@pytest.mark.parametrize("name", ["atari_classics_laser", "atari5_laser"])
def test_studies_of_replay_use_the_flags_of_the_package(name):
    """Guards that what the pages say of workstation.flags was measured with it."""
    lines = (ROOT / "seed_rl/atari/workstation.flags").read_text().splitlines()
    flags = dict(line[2:].split("=") for line in lines if line.startswith("--"))
    spec = json.loads((ROOT / f"studies/{name}.json").read_text())
    assert int(flags.pop("total_environment_frames")) == spec["frames"]
    protocol = {"sticky_actions": True, "compute_dtype": "bfloat16"}
    assert spec["flags"] == protocol | {key: json.loads(value) for key, value in flags.items()}
