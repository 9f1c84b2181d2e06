"""What an agent learns from a batch depends neither on the number of replicas that it is split over
nor on XLA.
"""

import json

import numpy as np
import pytest


@pytest.fixture
def train(forks, repository):
    """`train(agent, replicas, jit)` returns what `replicas_program` prints: values by name."""

    def train(agent, replicas, jit="false"):
        module = "tests.helpers.programs.replicas_program"
        result = forks.run("-m", module, agent, str(replicas), jit, cwd=repository, code=0)
        return json.loads(result.stdout.splitlines()[-1])

    return train


@pytest.mark.slow
@pytest.mark.parametrize(
    "agent",
    ["popart", "r2d2", "sac", "ppo"]
    + [pytest.param(a, marks=pytest.mark.nightly) for a in ("normalized", "pqn")],
)
def test_one_device_and_four_learn_the_same(train, agent):
    """Guards means over real transitions, importance weights, maxima and metrics; and that networks
    which want to know are told once of each step. One that normalizes its observations (V-trace's,
    wrapped) has the statistics of all batches, and so has its copy that acts.
    """
    alone, together = (train(agent, replicas) for replicas in (1, 4))
    assert alone.keys() == together.keys()
    assert any(name.startswith("weights/") for name in alone)
    assert alone["told"] == (0 if agent == "normalized" else 3)
    for name, expected in alone.items():
        np.testing.assert_allclose(together[name], expected, rtol=2e-4, atol=1e-6, err_msg=name)
    for values in (alone, together) if agent == "normalized" else ():
        for name in ("trained", "copied"):
            np.testing.assert_allclose(
                values[f"statistics/{name}"], values["statistics/numpy"], rtol=1e-5, err_msg=name
            )


@pytest.mark.slow
def test_one_device_and_two_learn_the_same_with_the_on_policy_agent(train):
    """Guards, besides: normalized advantages, statistics of observations and of value targets."""
    alone, together = (train("policy_gradient", replicas) for replicas in (1, 2))
    assert alone.keys() == together.keys()
    assert sum(name.startswith("statistics/") for name in alone) >= 4
    for name, expected in alone.items():
        np.testing.assert_allclose(together[name], expected, rtol=2e-4, atol=1e-6, err_msg=name)
    # Its steps are compiled on CPUs, too.
    same_compiled(alone, train("policy_gradient", 1, "true"))


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("agent", ["vtrace", "r2d2", "sac", "pqn"])
def test_compiled_steps_learn_the_same(train, agent):
    same_compiled(train(agent, 1), train(agent, 1, "true"))


def same_compiled(interpreted, compiled):
    """Guards --jit, of losses that draw nothing at random: weights, metrics and feedback."""
    assert interpreted.keys() == compiled.keys()
    for name, expected in interpreted.items():
        np.testing.assert_allclose(compiled[name], expected, rtol=5e-5, atol=1e-6, err_msg=name)
