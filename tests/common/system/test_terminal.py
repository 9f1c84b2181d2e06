"""Programs at a terminal: Ctrl-C while they start, readers that go, displays that are not there."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest

from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError
from seed_rl.common.system import display


@pytest.mark.parametrize(
    ("program", "arguments", "imported"),
    [
        ("seed_rl.launch.local", ["gym", "vtrace", "1"], "rich.text"),
        ("seed_rl.gym.vtrace_main", ["--run_mode=learner"], "numpy.linalg"),
        ("seed_rl.gym.vtrace_main", ["--run_mode=learner"], "tensorflow.python.framework.dtypes"),
        ("seed_rl.play", ["."], "numpy.linalg"),
    ],
)
def test_ctrl_c_during_imports(program, arguments, imported, tmp_path):
    """An end without a traceback."""
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", program, *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        seen = next((line for line in process.stderr if line.split()[-1] == imported), None)
        assert seen is not None, "the program has ended, or imports something else"
        os.killpg(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert "Traceback" not in errors and "KeyboardInterrupt" not in output + errors
    assert process.returncode in (-signal.SIGINT, 130)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "command",
    [
        ["./run_local.sh", "--help"],
        ["./stop_local.sh", "--help"],
        [sys.executable, "-m", "seed_rl.gym.r2d2_main", "--help"],
        [sys.executable, "-m", "seed_rl.play", "--help"],
    ],
    ids=" ".join,
)
def test_help_without_a_reader(repository, command, unbuffered):
    """What `--help | head` does at its worst."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer) as output:
        result = subprocess.run(
            command,
            cwd=repository,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert result.stderr == ""


@pytest.mark.parametrize("number", ["0", "-1", "many"])
def test_numbers_of_episodes(tmp_path, number):
    result = subprocess.run(
        [sys.executable, "-m", "seed_rl.play", str(tmp_path), f"--episodes={number}"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 2
    assert f"--episodes: must be a whole number of at least 1, not {number}" in result.stderr


def test_a_window_without_a_display(tmp_path):
    """Guards play from libraries that crash: it says what is missing before it starts anything."""
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    result = subprocess.run(
        [sys.executable, "-m", "seed_rl.play", str(tmp_path), "--render"],
        env={name: value for name, value in os.environ.items() if name not in hidden},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 2
    assert result.stderr.startswith("error: There is no display for --render")
    assert "--video=" in result.stderr


def test_displays(tmp_path):
    """Guards displays that are named but gone; and that those that answer are taken."""
    for variables in (
        {"DISPLAY": ":987654"},
        {"DISPLAY": "nonsense"},
        {"DISPLAY": "localhost:59535"},
        {"WAYLAND_DISPLAY": "wayland-0", "XDG_RUNTIME_DIR": str(tmp_path)},
    ):
        with pytest.raises(UserError, match="does not respond"):
            display.check(variables)
    display.check({"SDL_VIDEODRIVER": "dummy"})
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "wayland-0"))
        listener.listen()
        display.check({"WAYLAND_DISPLAY": "wayland-0", "XDG_RUNTIME_DIR": str(tmp_path)})
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number = listener.getsockname()[1] - 6000
        display.check({"DISPLAY": f"127.0.0.1:{number}.0"})


@pytest.mark.parametrize("address", ["foo", "localhost", ":x", "localhost:99999", "unix:", "h:-1"])
def test_addresses_without_sense(address):
    with pytest.raises(UserError, match=f"--server_address={address} is not an address: use host"):
        RunConfig(server_address=address)


@pytest.mark.parametrize("address", ["localhost:0", "[::]:8686", "unix:/x", "dns:///host:80"])
def test_addresses(address):
    assert RunConfig(server_address=address).server_address == address
