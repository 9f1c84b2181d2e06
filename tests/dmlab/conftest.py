"""The engine of DeepMind Lab: the real one if it is installed, and a stand-in in any case."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers import STANDINS

REAL = importlib.util.find_spec("deepmind_lab") is not None


def load_standin() -> Any:
    """A fresh copy of the module."""
    spec = importlib.util.spec_from_file_location("deepmind_lab", STANDINS / "deepmind_lab.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The stand-in as `deepmind_lab`."""
    module = load_standin()
    monkeypatch.setitem(sys.modules, "deepmind_lab", module)
    return module


@pytest.fixture(params=["stand-in", "real"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`deepmind_lab`: what both engines must do alike."""
    if request.param == "stand-in":
        module = load_standin()
        monkeypatch.setitem(sys.modules, "deepmind_lab", module)
        yield module
    elif REAL:
        import deepmind_lab

        yield deepmind_lab
    else:
        pytest.skip("DeepMind Lab is not installed")
