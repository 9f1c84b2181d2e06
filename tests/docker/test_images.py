"""The images, where an engine is available, and static checks without one."""

from __future__ import annotations

import importlib.metadata
import pathlib
import re
import shutil

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.helpers import PROGRAMS, run, run_python

FAMILIES = ["atari", "dmlab", "football", "mujoco"]


def no_engine() -> str:
    """Why images cannot be built here; "" if they can."""
    if not shutil.which("docker"):
        return "Docker is not installed"
    answer = run("docker", "version")
    words = answer.stderr.strip().splitlines() or ["no answer"]
    return f"Docker's engine does not answer: {words[-1]}" if answer.returncode else ""


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_run_in_containers(repository):
    """docker/test.sh: builds, trains, stops, resumes."""
    if reason := no_engine():
        pytest.skip(f"{reason}; docker/test.sh has not run")
    done = run(repository / "docker" / "test.sh", code=0, timeout=1400)
    assert done.stdout.endswith("passed\n")


@pytest.mark.parametrize("name", ["base", "family", "dmlab"])
def test_dockerfiles_work_with_plain_builders(repository, name):
    """No feature that only some builders have; no tag that moves to another Python or Debian."""
    text = (repository / "docker" / f"Dockerfile.{name}").read_text()
    assert not re.search(r"# *syntax=|<<|COPY.*--link", text)
    images = re.findall(r"python:\S+", text)
    assert all(image == "python:3.11-slim-bookworm" for image in images)
    assert re.findall(r"^USER (\S+)", text, re.MULTILINE)[-1] == "1000"


def locked(repository: pathlib.Path, name: str) -> dict[str, str]:
    path = repository / "docker" / "requirements" / f"{name}.txt"
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9.-]+==[^ ]+", line) for line in lines)
    return dict(line.split("==") for line in lines)


def test_locked_versions_satisfy_pyproject(repository):
    """A requirement changed in pyproject.toml without docker/lock.py is noticed."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 has tomllib")
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    wanted = {"learner-cpu": project["dependencies"], "learner-gpu": project["dependencies"]}
    wanted |= {family: project["optional-dependencies"][family] for family in FAMILIES}
    wanted["tensorboard"] = importlib.metadata.requires("tensorboard") or []
    everywhere: dict[str, set[str]] = {}
    for file in [*wanted, "actor", "atari-actor", "learner"]:
        for package, version in locked(repository, file).items():
            everywhere.setdefault(package, set()).add(version)
    assert {package: found for package, found in everywhere.items() if len(found) > 1} == {}
    for file, requirements in wanted.items():
        parts = ["actor", file, *["learner"] * file.startswith("learner-")]
        known = {k: version for part in parts for k, version in locked(repository, part).items()}
        for requirement in map(Requirement, requirements):
            name = canonicalize_name(requirement.name)
            if (file, name) == ("learner-cpu", "tensorflow"):
                name = canonicalize_name("tensorflow-cpu")
            assert name in known, f"{file}: {name} is missing; run docker/lock.py"
            assert requirement.specifier.contains(known[name]), f"{requirement}: run docker/lock.py"


def test_actors_have_no_tensorflow(repository):
    for name in ("actor", "tensorboard", "atari-actor", "dmlab", "football", "mujoco"):
        found = [package for package in locked(repository, name) if "tensorflow" in package]
        assert found == []


@pytest.mark.parametrize(
    ("module", "requirements"),
    [
        *[(f"seed_rl.gym.{agent}_main", "actor") for agent in ("ppo", "pqn", "r2d2", "vtrace")],
        ("seed_rl.atari.vtrace_main", "atari-actor"),
        ("seed_rl.mujoco.ppo_main", "mujoco"),
    ],
)
def test_actors_need_only_the_packages_of_their_image(repository, module, requirements):
    """Guards actors that start here, where the learner's packages are installed, too."""
    files = [repository / f"docker/requirements/{name}.txt" for name in ("actor", requirements)]
    program = [PROGRAMS / "only_packages_of.py", ",".join(map(str, files)), module]
    flags = ["--run_mode=actor", "--server_address=unix:/nowhere", "--reconnect_timeout_s=0"]
    done = run_python(*program, *flags, "--connect_timeout_s=0.1")
    assert (done.returncode, "No module" in done.stderr) == (4, False), done.stderr


def test_nothing_private_is_sent_to_the_engine(repository):
    """The list of image contents is an allowlist."""
    for name in (".dockerignore", "docker/Dockerfile.dmlab.dockerignore"):
        lines = (repository / name).read_text().splitlines()
        rules = [line for line in lines if line and not line.startswith("#")]
        assert rules[0] == "*"
        assert {rule for rule in rules if rule.startswith("!")} <= {
            *("!docker/requirements", "!seed_rl", "!pyproject.toml", "!setup.py", "!MANIFEST.in"),
            *("!README.md", "!CHANGELOG.md", "!CITATION.cff", "!LICENSE", "!**/*.whl"),
        }
