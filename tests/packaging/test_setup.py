"""scripts/setup.sh: installs what is missing, keeps what is current, and reports its steps."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import site
import subprocess
import sys

import pytest

from tests.helpers import run, run_python, stand_in
from tests.helpers.waiting import PATIENCE_S


def setup(tree: pathlib.Path, *extras: str, **environment: str) -> str:
    """Runs the script and returns its output."""
    result = run(tree / "scripts" / "setup.sh", *extras, code=0, variables=environment)
    assert not result.stdout
    return result.stderr


@pytest.fixture
def prepared(tree) -> pathlib.Path:
    """A tree with an environment of its own.

    TensorFlow and the other packages are lent by this one, as fetching them again would take
    minutes.
    """
    subprocess.run([sys.executable, "-m", "venv", tree / ".venv"], check=True, timeout=PATIENCE_S)
    (packages,) = (tree / ".venv").glob("lib/python*/site-packages")
    (packages / "lent.pth").write_text("\n".join(site.getsitepackages()))
    return tree


def libraries(tree: pathlib.Path) -> dict[str, tuple[int, int]]:
    files = (tree / "seed_rl" / "_native").iterdir()
    return {file.name: (file.stat().st_ino, file.stat().st_mtime_ns) for file in files}


@pytest.mark.nightly
def test_only_what_is_missing_is_done(prepared):
    """Guards an added extra from building again, and a build from forgetting earlier extras."""
    said = setup(prepared, "plot")
    assert "building the native libraries, installing seed_rl[plot]" in said
    built = libraries(prepared)
    assert "libseed_replay.so" in built
    assert setup(prepared, "plot") == setup(prepared) == ""

    said = setup(prepared, "video,plot")
    assert "installing the requirements of seed_rl[video]" in said
    assert "building" not in said and "TensorFlow" not in said
    assert setup(prepared, "video,plot") == setup(prepared, "video") == ""
    assert libraries(prepared) == built

    folder = prepared / "seed_rl" / "common" / "native" / "replay"
    (folder / "b.cc").write_text("int b() { return 4; }\n")
    assert "installing seed_rl[plot,video]" in setup(prepared)
    assert setup(prepared, "plot,video") == ""
    assert libraries(prepared) != built


@pytest.mark.nightly
def test_libraries_built_against_something_else_are_built_again(prepared, tmp_path_factory):
    """Guards a system whose gRPC was upgraded, and a tree that a second environment built in."""
    setup(prepared)
    info = prepared / "seed_rl" / "_native" / "build_info.json"
    good = info.read_text()
    assert '"libzstd"' in good
    info.write_text(good.replace("2.2", "2.1"))
    assert "building the native libraries" in setup(prepared)
    assert info.read_text() == good

    newer = tmp_path_factory.mktemp("pkgconfig")
    (newer / "grpc++.pc").write_text("Name: gRPC++\nDescription: RPC\nVersion: 99.0\n")
    assert "building" in setup(prepared, PKG_CONFIG_PATH=str(newer))
    assert setup(prepared, PKG_CONFIG_PATH=str(newer)) == ""

    info.with_name("libseed_replay.so").unlink()
    assert "building" in setup(prepared, PKG_CONFIG_PATH=str(newer))
    assert info.with_name("libseed_replay.so").exists()


def test_other_versions_of_tensorflow_and_grpc_are_another_build(tree, tmp_path_factory):
    """Guards libraries from calling a TensorFlow or gRPC that they were not compiled against."""
    script = (tree / "scripts" / "setup.sh").read_text()
    assert script.endswith("\nmain\n")
    only = tree / "scripts" / "fingerprint.sh"
    only.write_text(script.removesuffix("main\n") + "native_fingerprint\n")
    packages = tree / ".venv" / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    pkgconfig = tmp_path_factory.mktemp("pkgconfig")

    def fingerprint(tensorflow: str, grpc: str) -> str:
        (pkgconfig / "grpc++.pc").write_text(f"Name: gRPC++\nDescription: RPC\nVersion: {grpc}\n")
        installed = packages / f"tensorflow-{tensorflow}.dist-info"
        installed.mkdir()
        environment = {**os.environ, "PKG_CONFIG_PATH": str(pkgconfig)}
        found = run("bash", only, code=0, env=environment).stdout
        installed.rmdir()
        assert len(found.split()[0]) == 64, found
        return found

    first = fingerprint("2.21.0", "1.51.1")
    assert fingerprint("2.21.0", "1.51.1") == first
    assert fingerprint("2.21.1", "1.51.1") != first
    assert fingerprint("2.21.0", "1.51.2") != first


def test_an_unknown_extra_is_refused(tree):
    """pip would only warn of it."""
    result = run(tree / "scripts" / "setup.sh", "plot,vidoe", code=1)
    assert re.search(r'unknown extra "vidoe"; choose from: .*\bvideo\b', result.stderr)
    assert not (tree / ".venv").exists()


def test_a_long_step_says_that_it_still_runs(tree, tmp_path_factory):
    """Guards users from killing a set-up that is silent for minutes while packages download."""
    python = stand_in(
        tmp_path_factory.mktemp("tools") / "python3",
        f'[ "$2" = venv ] && sleep 3 && exit 1\nexec {sys.executable} "$@"',
    )
    result = run(
        tree / "scripts" / "setup.sh",
        code=1,
        variables={"PYTHON": str(python), "SETUP_REPORT_S": "1"},
    )
    first, *rest = result.stderr.splitlines()
    assert first == f"setup: creating the virtual environment {tree}/.venv"
    # In whole seconds of the clock, of which one second may touch three.
    still = rf"setup: still creating the virtual environment {re.escape(str(tree))}/\.venv"
    assert re.fullmatch(rf"{still} \(0 min [1-9] s\)", rest[0])


@pytest.mark.parametrize(
    "has_apt, extra, packages",
    [
        (True, "atari", "g++ pkg-config libgrpc++-dev libzstd-dev"),
        (False, "atari", "g++ pkg-config libgrpc++-dev libzstd-dev"),
        (True, "dev", "openssl "),
    ],
)
def test_setup_without_rights_prints_the_command(tree, tmp_path_factory, has_apt, extra, packages):
    """Without root or sudo nothing is touched: the apt command is shown and the script stops.

    Where there is no apt, it names the packages. Those of the tests are missed even if the
    libraries are current, as after a training.
    """
    tools = tmp_path_factory.mktemp("tools")
    script = tree / "scripts" / "setup.sh"
    if extra == "dev":
        main = "libraries_are_current() { true; }\nmain\n"
        script.write_text(script.read_text().removesuffix("main\n") + main)
    needed = "bash dirname readlink env cat tr grep sed head paste mkdir flock sha256sum"
    for tool in needed.split():
        (tools / tool).symlink_to(str(shutil.which(tool)))
    (tools / "python3").symlink_to(sys.executable)
    stand_in(tools / "id", "echo 1000")
    if has_apt:
        stand_in(tools / "apt-get", "exit 1")
    result = run(script, extra, code=1, env={"PATH": str(tools), "HOME": str(tree)})
    command = f"sudo apt-get install --yes --no-install-recommends {packages}"
    assert packages in result.stderr and (command in result.stderr) == has_apt
    assert has_apt or "a wheel: docs/installation.md" in result.stderr
    assert not (tree / ".venv").exists()


@pytest.mark.parametrize("in_venv", [False, True])
def test_an_unsupported_python_is_refused(tree, tmp_path_factory, in_venv):
    tools = tmp_path_factory.mktemp("tools")
    if in_venv:
        tools = tree / ".venv" / "bin"
        tools.mkdir(parents=True)
    stand_in(
        tools / ("python" if in_venv else "python3"),
        '[ "$1" = -V ] && echo "Python 3.9.1"\ncase "$2" in *version_info*) exit 1;; esac\nexit 0',
    )
    result = run(
        tree / "scripts" / "setup.sh",
        "atari",
        code=1,
        variables={"PATH": f"{tools}:{os.environ['PATH']}"},
    )
    python, remedy = "python3", "Choose another"
    if in_venv:
        python, remedy = f"{tools}/python", f"Delete {tree}/.venv"
    required = "Python 3.10 to 3.13 is required"
    assert f"{required}, but {python} is Python 3.9.1. {remedy}" in result.stderr


def test_the_arguments_are_checked_by_a_python_before_3_10():
    """It lacks sys.orig_argv, and has to come as far as the message above."""
    run_python("-c", "import sys; del sys.orig_argv; sys.argv = ['-m']; import seed_rl", code=0)


@pytest.mark.parametrize("state", ["working", "without pip", "dangling"])
def test_a_broken_environment_is_made_anew(tree, tmp_path_factory, state):
    """Guards setups after Python was upgraded or removed. A working one needs no other Python; one
    without pip, such as uv's, keeps what is installed.
    """
    tools = tmp_path_factory.mktemp("tools")
    working = stand_in(tools / "working", "exit 0")
    stand_in(tools / "without pip", '[ "$2" != "import pip" ]')
    folder = tree / ".venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "python").symlink_to(tools / state)
    stand_in(folder / "pip", "exit 1")
    (tree / ".venv" / ".seed_rl_setup_video").touch()
    python = stand_in(
        tools / "python3",
        f"""case "$2" in
          *version_info*) exit {int(state == "working")} ;;
          venv) if [ "$3" = --clear ]; then shift && rm -r "$3"; fi
            mkdir -p "$3/bin" && ln -sf {working} "$3/bin/python" ;;
        esac""",
    )
    (tree / ".venv" / "installed").touch()
    said = setup(tree, "plot", PYTHON=str(python))
    assert ("creating" in said) == (state != "working")
    assert "plot,video]" in said
    assert (tree / ".venv" / "installed").exists() == (state != "dangling")


def test_a_mistyped_python_is_named_and_a_second_setup_waits_aloud(tree, tmp_path_factory):
    """Guards users from installing the system's Python again and again, and from silence."""
    tools = tmp_path_factory.mktemp("tools")
    stand_in(tools / "flock", '[ "$1" != -n ]')
    stand_in(tools / "apt-get", "exit 1")
    variables = {"PYTHON": "python3.x", "PATH": f"{tools}:{os.environ['PATH']}"}
    result = run(tree / "scripts" / "setup.sh", code=1, variables=variables)
    assert result.stderr == (
        "setup: waiting for another setup of this checkout\n"
        "error: PYTHON=python3.x is not found; install it, or choose another\n"
    )


def test_other_systems_are_sent_to_the_docs(tree):
    variables = {"OSTYPE": "darwin23", "PYTHON": "/nowhere/python3"}
    result = run(tree / "scripts" / "setup.sh", code=1, variables=variables)
    assert "needs Linux" in result.stderr and "docs/platforms.md" in result.stderr
