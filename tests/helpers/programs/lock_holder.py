"""Holds the lock of the given directory."""

import pathlib
import sys
import time

from seed_rl.common.system.file_lock import LearnerLock


def main():
    lock = LearnerLock(pathlib.Path(sys.argv[1]))
    print("locked", flush=True)
    time.sleep(100)
    lock.release()


if __name__ == "__main__":
    main()
