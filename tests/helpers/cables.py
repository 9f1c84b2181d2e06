"""A network between two programs that can be cut."""

from __future__ import annotations

import contextlib
import socket
import threading


class Cable:
    """Forwards TCP connections to a port of this machine.

    Attributes:
      address: what programs connect to instead.
    """

    def __init__(self, port: int):
        self._port = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._intact = threading.Event()
        self._intact.set()
        self._ends = [self._server]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Nothing passes from now on, and nobody is told, as when a switch fails."""
        self._intact.clear()

    def mend(self) -> None:
        """What was sent meanwhile arrives."""
        self._intact.set()

    def close(self) -> None:
        for end in self._ends:
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller = self._server.accept()[0]
                self._ends.append(caller)
                with contextlib.suppress(ConnectionRefusedError):
                    called = socket.create_connection(("127.0.0.1", self._port))
                    self._ends.append(called)
                    for end in (caller, called):
                        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    for pair in ((caller, called), (called, caller)):
                        threading.Thread(target=self._forward, args=pair, daemon=True).start()
                    continue
                caller.close()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self._intact.wait()
                sink.sendall(data)
        if self._intact.is_set():
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)
