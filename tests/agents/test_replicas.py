"""What an agent learns from a batch does not depend on the number of replicas it is split over."""

import json
import subprocess
import sys

import numpy as np
import pytest


def train(repository, agent, replicas):
    """What `replicas_program` prints: numbers and nested lists of them by name."""
    output = subprocess.run(
        [sys.executable, "-m", "tests.helpers.programs.replicas_program", agent, str(replicas)],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=repository,
    )
    assert output.returncode == 0, output.stderr
    return json.loads(output.stdout.splitlines()[-1])


@pytest.mark.parametrize("agent", ["vtrace", "r2d2"])
def test_one_device_and_four_learn_the_same(repository, agent):
    """Guards means over real transitions, importance weights, maxima and metrics."""
    alone, together = (train(repository, agent, replicas) for replicas in (1, 4))
    assert alone.keys() == together.keys()
    assert any(name.startswith("weights/") for name in alone)
    for name, expected in alone.items():
        np.testing.assert_allclose(together[name], expected, rtol=2e-4, atol=1e-6, err_msg=name)
