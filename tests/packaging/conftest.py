"""A small working tree to build and set up."""

from __future__ import annotations

import pathlib
import shutil

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
