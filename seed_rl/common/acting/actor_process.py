"""The process of an actor that `local_actors` starts."""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import threading
import traceback

from seed_rl.common.acting.actor import run_actor
from seed_rl.common.errors import UserError

_PIECE = 65536


def main() -> None:
    """Runs an actor until standard input is closed.

    Standard input begins with the length <uint64, little endian> of a pickle of (`Environments`,
    `ActorConfig`), and the pickle. The only argument is a file descriptor: if an exception ends the
    actor, it is described there.
    """
    work = sys.stdin.buffer
    size = int.from_bytes(work.read(8), "little")
    payload = work.read(size)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        environments, config = pickle.loads(payload)
        run_actor(environments, config)
    except BaseException as error:
        _report(int(sys.argv[1]), error)
        sys.exit(1)


def _end_with_parent() -> None:
    # Not `sys.stdin`, whose lock Python takes at exit.
    while os.read(0, _PIECE):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _report(descriptor: int, error: BaseException) -> None:
    cause = f" {error.__cause__!r}" if error.__cause__ else ""
    text = json.dumps(
        {
            "user": isinstance(error, UserError),
            "message": str(error) + cause if str(error) else repr(error),
            "traceback": "".join(traceback.format_exception(error)),
        }
    )
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
