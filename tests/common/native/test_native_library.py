"""Finding the native libraries, and the messages when they are missing or do not fit."""

from __future__ import annotations

import json
import sys

import pytest

from seed_rl.common.errors import UserError
from seed_rl.common.native import native_library, op_library
from seed_rl.grpc import call_stream
from seed_rl.grpc.channel_options import ClientOptions

MEND = "-m pip install --no-build-isolation -e ."


@pytest.fixture(autouse=True)
def in_an_environment_of_ones_own(monkeypatch):
    """As after `pip install -e .`, whatever these tests run in."""
    monkeypatch.setattr(sys, "prefix", "/opt/environment")


def test_a_missing_library(monkeypatch, tmp_path):
    monkeypatch.setattr(native_library, "_FOLDER", tmp_path)
    with pytest.raises(UserError, match="libseed_replay.so of SEED RL is missing") as error:
        native_library.path("libseed_replay")
    assert MEND in str(error.value)
    with pytest.raises(UserError, match="missing"):
        native_library.built_against()


def test_sources_that_hide_an_installation(monkeypatch, tmp_path):
    """Guards `pip install .` followed by a command in the clone: building again would not help."""
    installed = tmp_path / "site-packages/seed_rl/_native"
    installed.mkdir(parents=True)
    (installed / "build_info.json").touch()
    monkeypatch.setattr(native_library, "_FOLDER", tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site-packages")])
    with pytest.raises(UserError, match="Start from another folder: .*site-packages") as error:
        native_library.path("libseed_replay")
    assert MEND not in str(error.value)


def test_another_tensorflow(monkeypatch, tmp_path):
    """Patch releases keep the ABI; anything else is refused, naming both versions."""
    (tmp_path / "build_info.json").write_text(json.dumps({"tensorflow": "2.20.1"}))
    monkeypatch.setattr(native_library, "_FOLDER", tmp_path)
    native_library.check_version("2.20.0")
    with pytest.raises(UserError, match=r"against TensorFlow 2\.20\.1, but 2\.21\.0") as error:
        native_library.check_version("2.21.0")
    assert MEND in str(error.value) and "tensorflow==2.20.1" in str(error.value)


def test_a_library_that_does_not_load(monkeypatch, tmp_path):
    import tensorflow as tf

    (tmp_path / "build_info.json").write_text(json.dumps({"tensorflow": tf.__version__}))
    (tmp_path / "libbroken.so").write_text("this is no library")
    monkeypatch.setattr(native_library, "_FOLDER", tmp_path)
    with pytest.raises(UserError, match="does not load") as error:
        op_library.load_ops("libbroken")
    assert MEND in str(error.value)


def test_a_transport_that_does_not_load(monkeypatch, tmp_path):
    (tmp_path / "libseed_transport.so").write_text("this is no library")
    monkeypatch.setattr(native_library, "_FOLDER", tmp_path)
    call_stream._library.cache_clear()
    with pytest.raises(UserError, match="does not load: .* installed") as error:
        call_stream.CallStream("unix:/nowhere", ClientOptions())
    assert MEND in str(error.value)


def test_the_mend_is_that_of_the_installation(monkeypatch, tmp_path):
    """setup.sh repairs the environment that it made; without sources, nothing can be built."""
    monkeypatch.setattr(native_library, "_FOLDER", tmp_path)
    with pytest.raises(UserError, match=f"{sys.executable} {MEND}"):
        native_library.path("libseed_replay")
    root = native_library._ROOT
    monkeypatch.setattr(sys, "prefix", str(root / ".venv"))
    with pytest.raises(UserError, match=f"Build them again: {root}/scripts/setup.sh"):
        native_library.path("libseed_replay")
    monkeypatch.setattr(native_library, "_ROOT", tmp_path)
    with pytest.raises(UserError, match="Install the wheel of SEED RL again"):
        native_library.path("libseed_replay")
