"""Opens and closes clients; none may leave a thread or a file descriptor behind.

clients_come_and_go.py ADDRESS
"""

import os
import sys
import time

from seed_rl.grpc import numpy_client

PATIENCE_S = 30


def no_more(count, than):
    return all(a <= b for a, b in zip(count, than, strict=True))


def main():
    _, address = sys.argv
    counts = []
    for i in range(8):
        with numpy_client.Client(address) as client:
            assert client.foo(i) == i
        time.sleep(0.5 if i == 0 else 0)  # gRPC starts threads of its own late.
        deadline = time.monotonic() + PATIENCE_S
        while True:  # Threads of a closed client end soon, not immediately.
            count = [len(os.listdir(f"/proc/self/{kind}")) for kind in ("task", "fd")]
            if i == 0 or no_more(count, counts[0]) or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        counts.append(count)
    print(counts)
    assert no_more(counts[-1], counts[0])


if __name__ == "__main__":
    main()
