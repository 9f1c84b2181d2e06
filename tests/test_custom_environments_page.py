"""The five minutes of docs/custom_environments.md, followed literally in an empty folder."""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest

FRAMES = "--total_environment_frames="


def blocks(repository):
    """Of the page's first section, in order: (name of a file or "", its text or the commands)."""
    page = (repository / "docs" / "custom_environments.md").read_text()
    section = page.split("## In five minutes\n")[1].split("\n## ")[0]
    found = re.findall(r"(?:^`(\S+)`:\n\n)?^```\w*\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert len(found) == 5
    return found


def for_this_machine(commands, repository):
    """The commands with this Python, a few frames, and without a browser's TensorBoard."""
    python = shlex.quote(sys.executable)
    commands = re.sub(rf"{FRAMES}\d+", f"{FRAMES}3000 --tensorboard=false", commands)
    commands = commands.replace("~/seed_rl/run_local.sh", f"{python} -m seed_rl.launch.local")
    commands = commands.replace("~/seed_rl/.venv/bin/python", python)
    assert "~/" not in commands
    return commands


def test_the_environment_is_short(repository):
    """Guards the promise: from an empty folder to training with at most 25 lines."""
    files = [text for name, text in blocks(repository) if name]
    assert len(files) == 1
    assert len(files[0].splitlines()) <= 25


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_page_works(tmp_path, repository):
    """Every file is written and every command run, in order; the checker finds nothing to fix."""
    folder = tmp_path
    outputs = []
    for name, text in blocks(repository):
        if name:
            (folder / name).write_text(text)
            continue
        commands = for_this_machine(text, repository)
        result = subprocess.run(
            ["bash", "-ec", f"{commands}\necho; pwd"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(repository)},
            capture_output=True,
            text=True,
            timeout=800,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        outputs.append(result.stdout)
        folder = type(tmp_path)(result.stdout.splitlines()[-1])
    made, checked, trained, played = outputs
    assert folder.name == "my_project"
    assert "MUST BE FIXED" not in checked and "vtrace, ppo, r2d2, sac" in checked
    assert "training has ended" in trained
    progress = json.loads(
        (folder / "runs" / "gym-vtrace-my_env_Maze" / "progress.json").read_text()
    )
    assert progress["frames"] >= 3000
    assert "3 episodes" in played
