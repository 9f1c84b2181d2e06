"""Fixtures of the tests of existing names."""

import pytest
import tensorflow as tf


@pytest.fixture(params=[lambda fn: fn, tf.function], ids=["eager", "graph"])
def wrap(request):
    """Makes a function of the test run as it is, or in a graph."""
    return request.param
