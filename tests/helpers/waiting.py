"""Waiting for what other threads and processes do."""

import time

PATIENCE_S = 60  # What is waited for happens at once unless something is broken.


def wait_until(condition):
    """Waits until `condition()`."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.002)
