"""The file to which a learner that may move writes its address."""

from __future__ import annotations

import contextlib
import pathlib
import random
import socket
import time
from collections.abc import Callable

from seed_rl.common.errors import UserError
from seed_rl.common.system import files
from seed_rl.launch.ports import free_port

_PORTS = range(10_000, 32_768)  # Below those of outgoing connections.
_PERIOD_S = 1.0
_REPORT_S = 60.0
_PATIENCE_S = 600.0  # As an actor waits for its learner.


class NoLearnerError(UserError):
    """There is no learner."""

    exit_code = 4  # As of actors.


def own_address() -> str:
    """HOST:PORT with this machine's name and a free port."""
    return f"{socket.gethostname()}:{_free_port()}"


def _free_port() -> int:
    """A free port that no outgoing connection takes before the learner listens there.

    Loading TensorFlow may take a minute.
    """
    for port in random.sample(_PORTS, 100):
        with contextlib.suppress(OSError), socket.socket() as listener:
            listener.bind(("0.0.0.0", port))
            return port
    return free_port("0.0.0.0")


def publish(path: pathlib.Path, address: str) -> None:
    """Writes the address, atomically.

    Raises:
      UserError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomically(path, f"{address}\n")
    except OSError as error:
        raise UserError(
            f"Cannot write the learner's address to SEED_RL_ADDRESS_FILE={path}: "
            f"{error.strerror}. Choose a file in a directory that the learner can write to and "
            "the actors can read."
        ) from error


def wait_for(
    path: pathlib.Path,
    say: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Reads the address as soon as there is one.

    Args:
      path: the file.
      say: reports, at first and each minute, that there is none yet.
      sleep: waits for a number of seconds.

    Raises:
      NoLearnerError: there is none for ten minutes.
      UserError: the file cannot be read.
    """
    waited_s = 0.0
    while True:
        try:
            if address := path.read_text(encoding="utf-8").strip():
                return address
        except FileNotFoundError:
            pass
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(
                f"Cannot read the learner's address in SEED_RL_ADDRESS_FILE={path}: {error}."
            ) from error
        if waited_s >= _PATIENCE_S:
            raise NoLearnerError(
                f"No learner has written its address to {path} for {waited_s:.0f} s. Check that "
                "it is running, and that this directory is shared with it."
            )
        if waited_s % _REPORT_S == 0:
            say(
                f"waiting for the learner to write its address to {path} (for {waited_s:.0f} s; "
                "is it running, and is this directory shared with it?)"
            )
        sleep(_PERIOD_S)
        waited_s += _PERIOD_S
