"""setup.py: rebuilding only what changed, and clear errors when tools are missing."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

from tests.helpers import run, run_python
from tests.helpers.waiting import PATIENCE_S


def build(
    tree: pathlib.Path, option: str = "--inplace", **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "setup.py", "build_ext", option],
        cwd=tree,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
    )


def compiles(result: subprocess.CompletedProcess[str]) -> bool:
    assert result.returncode == 0, result.stdout
    return "\ncompiling seed_rl/common/native/replay\n" in result.stdout


def test_only_what_changed_is_compiled(tree):
    folder = tree / "seed_rl" / "common" / "native" / "replay"
    library = tree / "seed_rl" / "_native" / "libseed_replay.so"
    assert compiles(build(tree, "--without-tensorflow")) and not library.parent.exists()
    assert not compiles(build(tree))
    assert library.exists() and library.with_name("build_info.json").exists()

    (folder / "b.cc").touch()
    assert not compiles(build(tree))
    (folder / "value.h").write_text("#define VALUE 3\n")
    assert compiles(build(tree))
    (folder / "b.cc").write_text("int b() { return 4; }\n")
    assert compiles(build(tree))
    (folder / "b.cc").unlink()
    assert compiles(build(tree))


def test_a_compiler_error_is_shown_and_not_remembered(tree):
    source = tree / "seed_rl" / "common" / "native" / "replay" / "b.cc"
    source.write_text("int b() { return missing_name; }\n")
    for _ in range(2):
        result = build(tree)
        assert result.returncode != 0
        assert "missing_name" in result.stdout
    source.write_text("int b() { return 2; }\n")
    assert compiles(build(tree))


def readelf(option: str, library: pathlib.Path) -> str:
    if not shutil.which("readelf"):
        pytest.skip("readelf is missing")
    command = ["readelf", "--wide", option, str(library)]
    return run(*command, code=0).stdout


@pytest.mark.parametrize("name", ["transport", "grpc_ops", "unroll_ops", "replay"])
def test_libraries_are_hardened(repository, name):
    """Guards a learner with untrusted clients: what an overflow writes is not executed.

    And the libraries that copy their messages check the sizes of buffers.
    """
    library = repository / "seed_rl" / "_native" / f"libseed_{name}.so"
    assert "BIND_NOW" in readelf("--dynamic", library)
    assert "GNU_RELRO" in readelf("--segments", library)
    symbols = readelf("--dyn-syms", library)
    assert "__stack_chk_fail" in symbols
    assert "_chk@" in symbols or name not in ("transport", "grpc_ops")


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
    built = run_python("-c", code, code=0, cwd=clone)
    with zipfile.ZipFile(home / built.stdout.splitlines()[-1]) as wheel:
        wheel.extractall(home / "site-packages")
    code = "import site, sys; site.addsitedir(sys.argv[1]); import seed_rl; print(seed_rl.__file__)"
    used = run_python(
        "-S",
        "-c",
        code,
        home / "site-packages",
        cwd=home,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert used.stdout.strip() == str(clone / "seed_rl" / "__init__.py"), used.stderr
