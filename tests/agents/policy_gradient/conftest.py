"""Gin's config, which is one for the whole process."""

import pytest

from seed_rl.agents.policy_gradient import gin_config


@pytest.fixture(autouse=True)
def unconfigured():
    """Keeps the config of one test from the next."""
    gin_config.load([])
    yield
    gin_config.load([])
