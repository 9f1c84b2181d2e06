"""Whether windows can be opened."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping

from seed_rl.common.errors import UserError

_TIMEOUT_S = 5.0
_X_PORT = 6000


def check(environment: Mapping[str, str] | None = None) -> None:
    """Checks for a display, because graphics libraries may crash the process without one.

    Args:
      environment: environment variables; None for those of the process. If `SDL_VIDEODRIVER` is
        set, nothing is checked.

    Raises:
      UserError: there is no display, or it does not respond.
    """
    environment = os.environ if environment is None else environment
    if environment.get("SDL_VIDEODRIVER"):
        return
    wayland, x = environment.get("WAYLAND_DISPLAY"), environment.get("DISPLAY")
    if not wayland and not x:
        raise UserError(
            "There is no display for --render: neither DISPLAY nor WAYLAND_DISPLAY is set. Use "
            "--video=FILE.mp4, or log in with a display (ssh -X)."
        )
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    if wayland and _answers(os.path.join(runtime, wayland)):
        return
    if x and _x_answers(x):
        return
    name = f"WAYLAND_DISPLAY={wayland}" if wayland else f"DISPLAY={x}"
    raise UserError(
        f"The display for --render does not respond: {name}. Correct it, or use --video=FILE.mp4."
    )


def _x_answers(display: str) -> bool:
    match = re.fullmatch(r"(.*):(\d+)(\.\d+)?", display)
    if match is None:
        return False
    host, number = match[1], int(match[2])
    if host in ("", "unix"):
        path = f"/tmp/.X11-unix/X{number}"
        return _answers(path) or _answers(f"\0{path}")
    try:
        socket.create_connection((host, _X_PORT + number), _TIMEOUT_S).close()
    except (OSError, OverflowError):
        return False
    return True


def _answers(path: str) -> bool:
    """Whether a process listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_TIMEOUT_S)
        try:
            client.connect(path)
        except OSError:
            return False
    return True
