"""Calls `add_one` at the given address, once for each line of its input."""

import sys

from seed_rl.grpc.errors import ClientError
from seed_rl.grpc.numpy_client import Client


def main():
    address = sys.argv[1]
    client = Client(address)
    for _ in sys.stdin:
        try:
            print(int(client.add_one(1)), flush=True)
        except ClientError as error:
            print(f"lost: {error}", flush=True)
            client = Client(address)


if __name__ == "__main__":
    main()
