"""Calls the server at the address, and does one of the following.

client_program.py ACTION ADDRESS
"""

import os
import sys
import threading
import time

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


def open_things():
    return [len(os.listdir(f"/proc/self/{kind}")) for kind in ("task", "fd")]


def come_and_go(address):
    """Often; closed clients may not leave a thread or a file descriptor behind."""

    def eight():
        for i in range(8):
            with Client(address) as client:
                assert client.foo(i) == i

    def no_more(than):
        """Waits for threads of closed clients, which end soon, not immediately."""
        deadline = time.monotonic() + 20
        while any(now > then for now, then in zip(open_things(), than, strict=True)):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    eight()
    for _ in range(10):  # gRPC starts threads of its own late, but not again and again.
        before = open_things()
        eight()
        if no_more(before):
            return
    sys.exit(f"threads and descriptors were {before}, are {open_things()}")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
