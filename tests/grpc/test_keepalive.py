"""Connections whose other end is frozen: found out by probes, with a real process."""

import signal
import subprocess
import sys

from seed_rl.grpc.channel_options import ServerOptions
from tests.helpers import PROGRAMS
from tests.helpers.op_helpers import add_one, serving
from tests.helpers.waiting import wait_until


def test_a_frozen_client_loses_its_connection_and_comes_back(socket_address):
    """Otherwise half-open connections would gradually use up max_connections."""
    with serving(socket_address, add_one, options=ServerOptions(keepalive_s=1)) as server:
        client = subprocess.Popen(
            [sys.executable, PROGRAMS / "client_program.py", "call_per_line", socket_address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

        def call():
            client.stdin.write("\n")
            return client.stdout.readline()

        try:
            assert call() == "2\n"
            assert server.stats()["connections"] == 1
            client.send_signal(signal.SIGSTOP)
            wait_until(lambda: server.stats()["connections"] == 0)
            client.send_signal(signal.SIGCONT)
            assert call().startswith("lost: ")
            wait_until(lambda: call() == "2\n")  # It may freeze again between two calls.
        finally:
            client.kill()
            client.communicate()
