"""Finds and loads the shared libraries that were built when the package was installed.

Only `load_ops` imports TensorFlow.
"""

from __future__ import annotations

import functools
import json
import pathlib
import shlex
import sys
from typing import Any

from seed_rl.common.errors import UserError
from seed_rl.common.system.extras import python_for_shell

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_FOLDER = _ROOT / "seed_rl" / "_native"


def path(name: str) -> pathlib.Path:
    """The file of the native library `name`, with or without the suffix `.so`.

    Raises:
      UserError: it was not built.
    """
    file = _FOLDER / (name if name.endswith(".so") else f"{name}.so")
    if not file.exists():
        raise UserError(f"The native library {file.name} of SEED RL is missing. {_mend()}")
    return file


@functools.cache
def load_ops(name: str) -> Any:
    """Loads a library of TensorFlow ops (once) and returns the module of its op functions.

    Raises:
      UserError: the library is missing, was built against another TensorFlow, or does not load.
    """
    file = path(name)
    import tensorflow as tf

    check_version(tf.__version__)
    try:
        return tf.load_op_library(str(file))
    except (tf.errors.OpError, OSError) as error:
        raise UserError(f"The native library {file} does not load: {error}\n{_mend()}") from error


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
            f"is installed. {_mend()} (or install tensorflow=={built})."
        )


def built_against() -> str:
    """The version of TensorFlow that the libraries were built against."""
    file = _FOLDER / "build_info.json"
    if not file.exists():
        raise UserError(f"The native libraries of SEED RL are missing. {_mend()}")
    return str(json.loads(file.read_text())["tensorflow"])


def _mend() -> str:
    """How to rebuild the libraries, given how this package was installed."""
    if not (_ROOT / "setup.py").exists():
        return "Install the wheel of SEED RL again."
    root = shlex.quote(str(_ROOT))
    if pathlib.Path(sys.prefix) == _ROOT / ".venv":
        return f"Build them again: {root}/scripts/setup.sh"
    install = f"{python_for_shell()} -m pip install --no-build-isolation -e ."
    return f"Build them again: cd {root} && {install}"
