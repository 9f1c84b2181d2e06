"""R2D2 trained on two devices while a third one acts (a process of its own: logical devices)."""

import pytest


@pytest.mark.slow
def test_two_replicas(forks, repository):
    """Guards batches, feedback and target network with mirrored variables."""
    result = forks.run("-m", "tests.helpers.programs.r2d2_replicas", cwd=repository)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "fine"
