"""Calls the server at the address, and does one of the following.

client_program.py ACTION ADDRESS
"""

import os
import sys
import threading

import numpy as np

from seed_rl.grpc.errors import ClientError
from seed_rl.grpc.numpy_client import Client


def call_once(address):
    """Until it is killed."""
    Client(address).foo(np.int32([1, 2]))


def call_per_line(address):
    """Of its input; prints the replies, and connects again after an error."""
    client = Client(address)
    for _ in sys.stdin:
        try:
            print(int(client.add_one(1)), flush=True)
        except ClientError as error:
            print(f"lost: {error}", flush=True)
            client = Client(address)


def wait(address):
    """For a call that is never answered, after forking a child that leaves at once."""
    client = Client(address)
    assert client.foo(0) == 0
    child = os.fork()
    if child == 0:
        sys.exit(0)  # Runs finalizers, which must leave the parent's stream alone.
    _, status = os.waitpid(child, 0)
    assert status == 0
    try:
        client.foo(1)
    except KeyboardInterrupt:
        assert client.foo(2) == 2  # The client remains usable.
        print("interrupted", flush=True)


def leave(address):
    """While another thread waits for a call that is never answered."""
    client = Client(address)
    threading.Thread(target=lambda: client.foo(1), daemon=True).start()
    assert sys.stdin.readline() == "leave\n"


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
