"""The file to which a learner that may move writes its address.

With several learners, each has a file, and all files must be from the same start: a learner that
reads an address from an earlier start would wait in vain. So the engine gives each start a new name
(SEED_RL_START), which the files contain.
"""

from __future__ import annotations

import pathlib
import socket
import time
from collections.abc import Callable

from seed_rl.cluster import say
from seed_rl.cluster.learners import PORTS_APART
from seed_rl.common.errors import ExitCode, UserError
from seed_rl.common.system import files
from seed_rl.launch.ports import free_port

_PERIOD_S = 1.0
_REPORT_S = 60.0
_PATIENCE_S = 600.0  # As long as an actor waits for its learner.


class NoLearnerError(UserError):
    """There is no learner."""

    exit_code = ExitCode.NO_LEARNER


def own_address() -> str:
    """HOST:PORT with this machine's name and a free port.

    The port at which several learners exchange gradients is free, too.
    """
    return f"{socket.gethostname()}:{free_port('0.0.0.0', PORTS_APART)}"


def of_learner(path: pathlib.Path, index: int) -> pathlib.Path:
    """The file of one of several learners, `path` for the first."""
    return path.with_name(f"{path.name}-{index}") if index else path


def publish(path: pathlib.Path, address: str, start: str = "") -> None:
    """Writes the address, atomically.

    Args:
      path: the file.
      address: HOST:PORT.
      start: names this start of several learners.

    Raises:
      UserError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomically(path, f"{address} {start}".strip() + "\n")
    except OSError as error:
        raise UserError(
            f"Cannot write the learner's address to SEED_RL_ADDRESS_FILE={path}: "
            f"{error.strerror}. Choose a file in a directory that the learner can write to and "
            "the actors can read."
        ) from error


def wait_for(
    path: pathlib.Path, start: str = "", sleep: Callable[[float], None] = time.sleep
) -> str:
    """Reads the address as soon as there is one; says, at first and each minute, if there is none.

    Args:
      path: the file.
      start: which start it must be of; "": any.
      sleep: waits for a number of seconds.

    Raises:
      NoLearnerError: there is none for ten minutes.
      UserError: the file cannot be read.
    """
    waited_s = 0.0
    while True:
        try:
            address, _, of = path.read_text(encoding="utf-8").strip().partition(" ")
            if address and start in ("", of):
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
