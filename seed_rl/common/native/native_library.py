"""Finds the shared libraries built when the package was installed (no TensorFlow)."""

from __future__ import annotations

import json
import pathlib
import shlex
import sys

from seed_rl.common.errors import UserError
from seed_rl.common.system.extras import python_for_shell

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_FOLDER = _ROOT / "seed_rl" / "_native"


def path(name: str) -> pathlib.Path:
    """The file of the native library `name`.

    Raises:
      UserError: it was not built.
    """
    file = _FOLDER / f"{name}.so"
    if not file.exists():
        raise UserError(f"The native library {file.name} of SEED RL is missing. {how_to_build()}")
    return file


def check_version(running: str) -> None:
    """Checks that TensorFlow `running` has the ABI that the libraries were built against.

    TensorFlow does not keep its C++ ABI between minor versions, so these must be equal; otherwise
    loading fails with missing symbols, or calls crash later.

    Raises:
      UserError: the minor versions differ.
    """
    built = built_against()
    if built.split(".")[:2] != running.split(".")[:2]:
        raise UserError(
            f"The native libraries of SEED RL were built against TensorFlow {built}, but {running} "
            f"is installed. {how_to_build()} (or install tensorflow=={built})."
        )


def built_against() -> str:
    """The version of TensorFlow that the libraries were built against."""
    file = _FOLDER / "build_info.json"
    if not file.exists():
        raise UserError(f"The native libraries of SEED RL are missing. {how_to_build()}")
    return str(json.loads(file.read_text())["tensorflow"])


def how_to_build() -> str:
    """How to rebuild the libraries, given how this package was installed."""
    if not (_ROOT / "setup.py").exists():
        return "Install the wheel of SEED RL again."
    if (installed := _hidden_installation()) is not None:
        return (
            f"Start from another folder: here, Python imports the sources in {_ROOT} instead of "
            f"the package installed in {installed}."
        )
    root = shlex.quote(str(_ROOT))
    if pathlib.Path(sys.prefix) == _ROOT / ".venv":
        return f"Build them again: {root}/scripts/setup.sh"
    install = f"{python_for_shell()} -m pip install --no-build-isolation -e ."
    return f"Build them again: cd {root} && {install}"


def _hidden_installation() -> pathlib.Path | None:
    """Where a built SEED RL is installed, if Python finds these sources before it."""
    for folder in map(pathlib.Path, filter(None, sys.path)):
        built = folder / "seed_rl" / "_native" / "build_info.json"
        if built.exists() and folder.resolve() != _ROOT:
            return folder
    return None
