"""Where several learners wait for each other, before TensorFlow connects them.

TensorFlow's own wait can neither be interrupted nor say who is missing. So the first learner
listens at its address until all others have called, and then lets all of them go on:

    learner 1 → learner 0: SEED RL learner 1 of 3
    learner 2 → learner 0: SEED RL learner 2 of 3
    learner 0 → all:       all here
"""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import time
from collections.abc import Sequence

from seed_rl.common.errors import LostLearnerError, UserError

_HELLO = "SEED RL learner {index} of {learners}\n"
_ALL_HERE = b"all here\n"
_POLL_S = 0.5
_SAY_EVERY_S = 30.0


def meet(addresses: Sequence[str], index: int, patience_s: float) -> None:
    """Returns once all learners have called this.

    Args:
      addresses: host:port of each learner.
      index: of this learner.
      patience_s: how long to wait.

    Raises:
      LostLearnerError: some did not connect in time.
      UserError: the first learner cannot listen at its port.
    """
    host, _, port = addresses[0].rpartition(":")
    wait = _Wait(addresses, patience_s)
    if index:
        _call(
            host.strip("[]"), int(port), _HELLO.format(index=index, learners=len(addresses)), wait
        )
    else:
        _receive(int(port), len(addresses), wait)


class _Wait:
    """Logs every half minute who is missing; gives up after a while."""

    def __init__(self, addresses: Sequence[str], patience_s: float):
        self._addresses = addresses
        self._patience_s = patience_s
        self._deadline = time.monotonic() + patience_s
        self._said = time.monotonic()

    def for_learners(self, missing: Sequence[int]) -> None:
        """Called repeatedly while these learners are missing."""
        names = ", ".join(f"{i} ({self._addresses[i]})" for i in missing)
        now = time.monotonic()
        if now > self._deadline:
            raise LostLearnerError(
                f"Learner {names} did not connect within {self._patience_s:.0f} s. Start all "
                "learners together, with the same --learner_addresses, which all of them must "
                "reach."
            )
        if now - self._said > _SAY_EVERY_S:
            self._said = now
            logging.info("Waiting for learner %s.", names)


def _receive(port: int, learners: int, wait: _Wait) -> None:
    family = socket.AF_INET6 if (both := socket.has_dualstack_ipv6()) else socket.AF_INET
    with contextlib.ExitStack() as stack:
        try:
            server = socket.create_server(("", port), family=family, dualstack_ipv6=both)
        except OSError as error:
            raise UserError(
                f"Learner 0 cannot listen at port {port} of --learner_addresses: {error.strerror}."
            ) from error
        stack.callback(server.close)
        server.settimeout(_POLL_S)
        here: dict[int, socket.socket] = {}
        while missing := [i for i in range(1, learners) if i not in here]:
            wait.for_learners(missing)
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                stack.callback(connection.close)
                connection.settimeout(_POLL_S)
                said = connection.recv(64).decode("ascii", "replace")
                match = re.fullmatch(_HELLO.format(index=r"(\d+)", learners=learners), said)
                if match and 0 < int(match[1]) < learners:
                    here[int(match[1])] = connection  # It may have started again.
                else:  # Not a learner of this run.
                    connection.close()
        for connection in here.values():
            with contextlib.suppress(OSError):
                connection.sendall(_ALL_HERE)


def _call(host: str, port: int, hello: str, wait: _Wait) -> None:
    while True:
        wait.for_learners([0])
        with contextlib.suppress(OSError):
            with socket.create_connection((host, port), timeout=_POLL_S) as connection:
                connection.sendall(hello.encode())
                if _answer(connection, wait) == _ALL_HERE:
                    return
        time.sleep(_POLL_S)


def _answer(connection: socket.socket, wait: _Wait) -> bytes:
    """What the first learner answers; b"": it has gone."""
    while True:
        with contextlib.suppress(TimeoutError):
            return connection.recv(64)
        wait.for_learners([0])  # Or for others, which only learner 0 knows.
