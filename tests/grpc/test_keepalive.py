"""Connections whose other end is frozen: found out by probes, with a real process."""

import signal
import subprocess
import sys

import tensorflow as tf

from seed_rl.grpc.options import ServerOptions
from tests.helpers.op_helpers import INTS, serving
from tests.helpers.waiting import wait_until

CLIENT = """
import sys
from seed_rl.grpc.errors import ClientError
from seed_rl.grpc.numpy_client import Client
from seed_rl.grpc.options import ClientOptions

address = sys.argv[1]
client = Client(address)
for _ in sys.stdin:
    try:
        print(int(client.add_one(1)), flush=True)
    except ClientError as error:
        print(f"lost: {error}", flush=True)
        client = Client(address)
"""


def test_a_frozen_client_loses_its_connection_and_comes_back(socket_address):
    """Else half-open connections would take the places of live ones, one after the other."""

    @tf.function(input_signature=[INTS])
    def add_one(x):
        return x + 1

    with serving(socket_address, add_one, options=ServerOptions(keepalive_s=1)) as server:
        client = subprocess.Popen(
            [sys.executable, "-c", CLIENT, socket_address],
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
            assert call() == "2\n"
        finally:
            client.kill()
            client.communicate()
