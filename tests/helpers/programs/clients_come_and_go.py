"""Opens and closes clients; they may not leave a thread or a file descriptor behind.

clients_come_and_go.py ADDRESS
"""

import os
import sys
import time

from seed_rl.grpc import numpy_client

PATIENCE_S = 20
CLIENTS = 8


def open_things():
    return [len(os.listdir(f"/proc/self/{kind}")) for kind in ("task", "fd")]


def come_and_go(address):
    for i in range(CLIENTS):
        with numpy_client.Client(address) as client:
            assert client.foo(i) == i


def no_more(than):
    """Waits for threads of closed clients, which end soon, not immediately."""
    deadline = time.monotonic() + PATIENCE_S
    while not all(now <= then for now, then in zip(open_things(), than, strict=True)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def main():
    _, address = sys.argv
    come_and_go(address)
    for _ in range(10):  # gRPC starts threads of its own late, but not again and again.
        before = open_things()
        come_and_go(address)
        if no_more(before):
            return
    sys.exit(f"threads and descriptors were {before}, are {open_things()}")


if __name__ == "__main__":
    main()
