"""Waits for a call that is never answered, after forking a child that leaves at once.

waiting_client.py ADDRESS
"""

import os
import sys

from seed_rl.grpc.numpy_client import Client


def main():
    client = Client(sys.argv[1])
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


if __name__ == "__main__":
    main()
