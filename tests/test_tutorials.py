"""The tutorials, followed literally in an empty folder; and the notebook."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests import helpers
from tests.helpers import run_python

FRAMES = "--total_environment_frames="
SETUP = "~/seed_rl/scripts/setup.sh gym,video,plot,study\nexport PATH=~/seed_rl/.venv/bin:$PATH\n"
# What a section leaves behind; all commands of the page are run by one of them.
MADE = {
    "Train an agent": ["cartpole.mp4", "cartpole.png", "runs/gym-ppo-CartPole-v1"],
    "Your environment": ["runs/gym-vtrace-my_env_Maze"],
    "Your network": ["runs/my_agent-vtrace-my_env_Maze"],
    "Your loss": ["runs/my_loss-vtrace-my_env_Maze"],
    "Many machines": ["runs/machines"],
}


def sections(repository):
    """By title: (name of a file or "", its text or the commands), in order."""
    page = (repository / "docs" / "tutorials.md").read_text()
    blocks = re.compile(r"(?:^`(\S+)`:\n\n)?^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    title, *rest = re.split(r"^## (.*)\n", page, flags=re.MULTILINE)
    ((_, setup),) = blocks.findall(title)
    assert setup == f"{SETUP}mkdir my_project && cd my_project\n"
    return {name: blocks.findall(text) for name, text in zip(rest[::2], rest[1::2], strict=True)}


def test_the_sections_are_short_and_each_is_run(repository):
    """Guards the promise: an environment and its training in at most 30 lines."""
    found = sections(repository)
    assert list(found) == list(MADE)
    files = {name: text for blocks in found.values() for name, text in blocks if name}
    assert list(files) == ["my_env.py", "my_network.py", "my_agent.py", "my_loss.py"]
    assert len(files["my_env.py"].splitlines()) <= 30


@pytest.mark.nightly
@pytest.mark.parametrize("section", MADE)
def test_a_section_works(tmp_path, repository, free_port, section):
    """Files are those of the page so far; every command of the section is run, in order."""
    found = sections(repository)
    for name in list(MADE)[: list(MADE).index(section) + 1]:
        for file, text in found[name]:
            if file:
                (tmp_path / file).write_text(text)
    commands = "".join(text for file, text in found[section] if not file)
    commands = re.sub(rf"{FRAMES}\d+", f"{FRAMES}3000", commands)
    commands = re.sub(r"(seed-rl train .*)", r"\1 --tensorboard=false", commands)
    commands = commands.replace("localhost:8686", f"localhost:{free_port}")
    programs = shlex.quote(str(Path(sys.executable).parent))
    script = f"export PATH={programs}:$PATH\n{commands}"
    variables = {"PYTHONPATH": str(repository)}
    command = ["bash", "-ec", script]
    result = helpers.run(*command, code=0, cwd=tmp_path, variables=variables, timeout=800)
    assert "MUST BE FIXED" not in result.stdout
    for made in MADE[section]:
        assert (tmp_path / made).exists(), result.stdout
    run = tmp_path / MADE[section][-1]
    assert json.loads((run / "progress.json").read_text())["frames"] >= 3000
    events = b"".join(path.read_bytes() for path in run.rglob("*tfevents*"))
    assert (b"losses/weights" in events) == (section == "Your loss")


@pytest.mark.nightly
def test_the_notebook_runs(tmp_path, repository):
    """Guards its cells, with fewer frames; and what it prints, lines instead of a panel."""
    notebook = json.loads((repository / "examples" / "quickstart.ipynb").read_text())
    cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    code = "\n".join(cells)
    assert code.count("frames=6e5") == 1
    # What Jupyter would have: a module that shows pictures.
    jupyter = (
        "import sys, types\n"
        "sys.modules['IPython.display'] = types.SimpleNamespace(Image=lambda p: p.stat().st_size)\n"
    )
    (tmp_path / "cells.py").write_text(jupyter + code.replace("6e5", "4e3") + "\nprint(agent)\n")
    result = run_python(
        "cells.py",
        code=0,
        cwd=tmp_path,
        variables={"PYTHONPATH": str(repository), "FORCE_COLOR": "1"},
        timeout=800,
    )
    assert "phase done" in result.stdout and "20 episodes, greedy" in result.stdout
    assert "\x1b" not in result.stdout
    assert (tmp_path / "runs" / "quickstart.gif").read_bytes()[:3] == b"GIF"
