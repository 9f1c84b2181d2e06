"""setup.py and scripts/setup.sh: rebuilding only what changed, and clear words when tools lack."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

SOURCE = '#include "seed_rl/common/native/replay/value.h"\n'


@pytest.fixture
def tree(tmp_path, repository) -> pathlib.Path:
    """A small working tree with the real setup files and one native library of two sources."""
    for name in ("setup.py", "pyproject.toml", "LICENSE", "scripts/setup.sh"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(repository / name, tmp_path / name)
    (tmp_path / "README.md").write_text("")
    folder = tmp_path / "seed_rl" / "common" / "native" / "replay"
    folder.mkdir(parents=True)
    (tmp_path / "seed_rl" / "__init__.py").write_text('__version__ = "0"')
    (folder / "value.h").write_text("#define VALUE 1\n")
    (folder / "a.cc").write_text(f"{SOURCE}int a() {{ return VALUE; }}\n")
    (folder / "b.cc").write_text("int b() { return 2; }\n")
    return tmp_path


def build(tree: pathlib.Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"],
        cwd=tree,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )


def compiled(result: subprocess.CompletedProcess[str]) -> list[str]:
    assert result.returncode == 0, result.stdout
    lines = result.stdout.splitlines()
    return sorted(line.split("/")[-1] for line in lines if line.startswith("compiling"))


def test_only_what_changed_is_compiled(tree):
    folder = tree / "seed_rl" / "common" / "native" / "replay"
    assert compiled(build(tree)) == ["a.cc", "b.cc"]
    assert (tree / "seed_rl" / "_native" / "libseed_replay.so").exists()
    assert (tree / "seed_rl" / "_native" / "build_info.json").exists()

    assert compiled(build(tree)) == []
    (folder / "b.cc").touch()
    assert compiled(build(tree)) == []
    (folder / "value.h").write_text("#define VALUE 3\n")
    assert compiled(build(tree)) == ["a.cc"]
    (folder / "b.cc").write_text("int b() { return 4; }\n")
    assert compiled(build(tree)) == ["b.cc"]


def test_a_compiler_error_is_shown_and_not_remembered(tree):
    source = tree / "seed_rl" / "common" / "native" / "replay" / "b.cc"
    source.write_text("int b() { return missing_name; }\n")
    for _ in range(2):
        result = build(tree)
        assert result.returncode != 0
        assert "missing_name" in result.stdout
    source.write_text("int b() { return 2; }\n")
    assert "b.cc" in compiled(build(tree))


@pytest.mark.parametrize(
    ("environment", "missing"),
    [
        ({"CXX": "no-such-compiler"}, "no-such-compiler"),
        ({"PKG_CONFIG_LIBDIR": "/nonexistent"}, "the development files of libzstd"),
    ],
)
def test_missing_tools_are_named_with_the_mend(tree, environment, missing):
    result = build(tree, **environment)
    assert result.returncode != 0
    assert f"{missing} not found" in result.stdout
    assert "sudo apt-get install g++ pkg-config libgrpc++-dev" in result.stdout
    assert "Traceback" not in result.stdout


def test_setup_without_rights_prints_the_command(tree, tmp_path_factory):
    """Without root or sudo nothing is touched: the apt command is shown and the script stops."""
    tools = tmp_path_factory.mktemp("tools")
    needed = "bash dirname readlink env cat tr grep head mkdir flock"
    for tool in needed.split():
        (tools / tool).symlink_to(str(shutil.which(tool)))
    (tools / "python3").symlink_to(sys.executable)
    (tools / "id").write_text("#!/bin/sh\necho 1000\n")
    (tools / "id").chmod(0o755)
    result = subprocess.run(
        [tree / "scripts" / "setup.sh", "atari"],
        env={"PATH": str(tools), "HOME": str(tree)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 1
    command = "sudo apt-get install --yes --no-install-recommends"
    assert f"{command} g++ pkg-config libgrpc++-dev libzstd-dev" in result.stderr
    assert not (tree / ".venv").exists()


def test_an_unsupported_python_is_refused(tree, tmp_path_factory):
    tools = tmp_path_factory.mktemp("tools")
    old = tools / "python3"
    old.write_text(
        '#!/bin/sh\n[ "$1" = -V ] && echo "Python 3.9.1"\n'
        'case "$2" in *version_info*) exit 1;; esac\nexit 0\n'
    )
    old.chmod(0o755)
    result = subprocess.run(
        [tree / "scripts" / "setup.sh", "atari"],
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 1
    assert "Python 3.10 to 3.13 is needed, but python3 is Python 3.9.1" in result.stderr


def test_every_package_has_an_init(repository):
    """A folder of modules without one would be missing from the wheel."""
    folders = {path.parent for path in (repository / "seed_rl").rglob("*.py")}
    missing = [folder for folder in folders if not (folder / "__init__.py").exists()]
    assert not missing


def test_an_editable_installation_works_beside_a_folder_of_its_name(tree, tmp_path_factory):
    """A clone may be called seed_rl and used from the folder around it, where Python sees a
    package of that name without content.
    """
    home = tmp_path_factory.mktemp("home")
    clone = tree.rename(home / "seed_rl")
    code = "from setuptools import build_meta; print(build_meta.build_editable('..'))"
    built = subprocess.run(
        [sys.executable, "-c", code], cwd=clone, capture_output=True, text=True, timeout=200
    )
    assert built.returncode == 0, built.stdout + built.stderr
    with zipfile.ZipFile(home / built.stdout.splitlines()[-1]) as wheel:
        wheel.extractall(home / "site-packages")
    code = "import site, sys; site.addsitedir(sys.argv[1]); import seed_rl; print(seed_rl.__file__)"
    used = subprocess.run(
        [sys.executable, "-S", "-c", code, home / "site-packages"],
        cwd=home,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert used.stdout.strip() == str(clone / "seed_rl" / "__init__.py"), used.stderr
