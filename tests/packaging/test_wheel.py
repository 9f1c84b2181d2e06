"""The wheel that carries gRPC with it, really installed and really called."""

from __future__ import annotations

import json
import pathlib
import re
import site
import subprocess
import venv
import zipfile

import pytest

from tests.helpers import run
from tests.helpers.waiting import PATIENCE_S

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def wheel(build_folder, repository) -> pathlib.Path:
    with build_folder("dist") as folder:
        if not any(folder.glob("*.whl")):
            script = repository / "scripts" / "build_wheel.sh"
            subprocess.run([script, folder], check=True, timeout=PATIENCE_S)
    (path,) = folder.glob("*.whl")
    return path


def test_contents(wheel):
    """All packages, the libraries, gRPC's own; no sources of tests, no TensorFlow."""
    assert re.fullmatch(r"seed_rl-[\d.]+-py3-none-manylinux_.*\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for name in ("libseed_transport.so", "libseed_grpc_ops.so", "libseed_unroll_ops.so"):
        assert f"seed_rl/_native/{name}" in names
    assert "seed_rl/_native/build_info.json" in names
    assert "seed_rl/grpc/numpy_client.py" in names
    assert {f"seed_rl/{game}/gin/ppo.gin" for game in ("atari", "gym", "mujoco")} <= set(names)
    assert "seed_rl/mujoco/gin/base.gin" in names
    assert any(re.match(r"seed_rl\.libs/libgrpc\+\+", name) for name in names)
    assert not any("tensorflow_framework" in name for name in names)
    assert not any(name.startswith(("tests", "benchmarks")) for name in names)


def test_a_call_through_the_installed_wheel(wheel, tmp_path, repository):
    """In a new environment, with the gRPC of the wheel and not the system's.

    TensorFlow and the other packages are lent by this environment (a path file does not bring in
    the editable installation of this repository), as fetching them again would take minutes.
    """
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", wheel]
    subprocess.run(install, check=True, timeout=PATIENCE_S)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (packages / "lent.pth").write_text("\n".join(site.getsitepackages()))

    result = run(
        python,
        repository / "tests" / "helpers" / "programs" / "wheel_program.py",
        code=0,
        cwd=tmp_path,
    )
    answer = json.loads(result.stdout.splitlines()[-1])
    assert answer["numpy"] == answer["tensorflow"] == [[0, 2, 4], [6, 8, 10]]
    assert answer["package"] == str(packages / "seed_rl")
    transport = [lib for lib in answer["libraries"] if re.search(r"/libgrpc|/libprotobuf", lib)]
    assert transport
    assert all(lib.startswith(str(packages / "seed_rl.libs")) for lib in transport), transport


def test_it_serves_every_python(wheel):
    """Nothing in it refers to Python's own library, so one wheel does for all versions."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith("seed_rl/_native/") and name.endswith(".so"):
                assert b"libpython" not in archive.read(name), name
