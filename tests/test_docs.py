"""The programs in the docs are run, and what the docs name exists."""

import ast
import re
import runpy
import subprocess
import sys
from types import SimpleNamespace

import pytest

from seed_rl.common.system import tokens
from seed_rl.testing.envs import MaskedEnv
from tests.helpers import run_python

PAGES = ("tutorials.md", "custom_environments.md")
# A file name in a line of its own, and its text.
FILE = re.compile(r"^`(my_\w+\.py)`:\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FOLDERS = "benchmarks|clients|docker|docs|examples|gcp|k8s|scripts|seed_rl|sky|slurm|studies|tests"
# Files and modules of the repository, wherever pages name them; not those below another folder.
PATH = re.compile(rf"(?<![\w/~.-])(?:{FOLDERS})/[\w/.-]*\w")
MODULE = re.compile(r"(?<![\w/.-])(?:seed_rl|examples|benchmarks)(?!\.md)(?:\.\w+)+")


def test_each_page_of_the_site_is_in_its_menu(repository):
    """The theme takes a named README within a section for the section's own page."""
    menu = (repository / "mkdocs.yml").read_text().partition("\nnav:\n")[2].partition("\n\n")[0]
    assert "README.md" in menu
    assert not re.findall(r"^ {4,}- .+: .*(?:README|index)\.md", menu, re.MULTILINE)


@pytest.fixture
def project(tmp_path, repository):
    """A folder with the files that the docs show, and nothing else."""
    for page in PAGES:
        for name, text in FILE.findall((repository / "docs" / page).read_text()):
            (tmp_path / name).write_text(text)
    return tmp_path


def test_a_token_made_as_documented_is_for_its_owner_only(tmp_path, repository, caplog):
    """Guards tokens from other users, whatever the umask of the shell."""
    text = (repository / "docs" / "security.md").read_text()
    (block,) = [b for b in re.findall(r"(?:^    .*\n)+", text, re.MULTILINE) if "rand -hex" in b]
    command = f"umask 022\n{block}"
    subprocess.run(["bash", "-ec", command], cwd=tmp_path, check=True, capture_output=True)
    made = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert made == {"secrets": 0o700, "token": 0o600}
    assert len(tokens.read(str(tmp_path / "secrets" / "token"), "--auth_token_file")) == 64
    assert not caplog.records


@pytest.mark.parametrize(
    ("module", "flags"),
    [
        ("my_agent", ["--env_name", "--entropy_cost", "--batch_size", "--num_envs"]),
        ("my_loss", ["--env_name", "--weight_decay", "--learning_rate"]),
        ("my_maze", ["--size", "--entropy_cost", "--mlp_sizes"]),
    ],
)
def test_help_lists_the_options(project, repository, module, flags):
    """Guards what the docs say of --help, and that it needs no TensorFlow."""
    program = run_python(
        "-m", module, "--help", code=0, cwd=project, variables={"PYTHONPATH": str(repository)}
    )
    for flag in flags:
        assert re.search(rf"^\s+{flag}:|--\[no\]{flag[2:]}:", program.stdout, re.MULTILINE), flag


def test_a_program_of_ones_own_has_what_environments_by_name_have(project, monkeypatch):
    """Guards masks in infos, which nothing else brings to the agent."""
    module = SimpleNamespace(Maze=lambda size: MaskedEnv("info", (size,)))
    monkeypatch.setitem(sys.modules, "my_env", module)
    program = runpy.run_path(str(project / "my_maze.py"))
    env = program["FAMILY"].create(0, program["MazeConfig"](size=5))
    assert env.reset(seed=1)[0]["action_mask"].shape == (5,)


def names_of(page):
    """Paths and dotted names in a page, without what is made at run time."""
    made = r"seed_rl\.Inference/\w+|seed_rl/_native\S*|seed_rl\.environments\b"
    text = re.sub(made, "", page.read_text())
    return set(PATH.findall(text)) | set(MODULE.findall(text))


def exists(repository, name):
    """Whether a path, or a module or something that it defines or re-exports, is there."""
    if "/" in name:
        return (repository / name).exists()
    parts, place = name.split("."), repository
    while parts and (place / parts[0]).is_dir():
        place /= parts.pop(0)
    module = place / "__init__.py"
    if parts and (place / f"{parts[0]}.py").is_file():
        module = place / f"{parts.pop(0)}.py"
    if not parts:
        return module.is_file()
    if not module.is_file():
        return False
    # (Some modules name what they re-export in a table of strings.)
    words = {
        getattr(node, attribute, None)
        for node in ast.walk(ast.parse(module.read_text()))
        for attribute in ("name", "id", "value")
    } - {None}
    return parts[0] in words


def test_names_in_the_docs_exist(repository):
    """Guards pages from naming modules, files and functions that were moved or renamed."""
    pages = [*repository.glob("*.md"), *(repository / "docs").rglob("*.md")]
    named = {(page.relative_to(repository), name) for page in pages for name in names_of(page)}
    assert len(named) > 100
    assert not sorted(f"{page}: {name}" for page, name in named if not exists(repository, name))
