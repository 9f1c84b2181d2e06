"""Missing displays."""

from __future__ import annotations

import socket

import pytest

from seed_rl.common.errors import UserError
from seed_rl.common.system import display


def test_displays(tmp_path):
    """Guards against displays that do not respond; those that answer are used."""
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
