"""Calls `foo` at the given address, and is killed before the reply."""

import sys

import numpy as np

from seed_rl.grpc import NumpyClient


def main():
    NumpyClient(sys.argv[1]).foo(np.int32([1, 2]))


if __name__ == "__main__":
    main()
