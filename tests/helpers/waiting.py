"""Waiting for other threads and processes."""

import time

PATIENCE_S = 60  # Every wait is short unless something is broken.


def wait_until(condition):
    """Waits until `condition()`."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.002)
