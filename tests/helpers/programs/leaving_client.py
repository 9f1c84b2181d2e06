"""Exits while another thread waits for a call that is never answered.

leaving_client.py ADDRESS
"""

import sys
import threading

from seed_rl.grpc.numpy_client import Client


def main():
    client = Client(sys.argv[1])
    threading.Thread(target=lambda: client.foo(1), daemon=True).start()
    assert sys.stdin.readline() == "leave\n"


if __name__ == "__main__":
    main()
