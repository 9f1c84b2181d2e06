"""Which process of a run this one is, from the environment variables of each engine."""

from __future__ import annotations

import json
import pathlib

import pytest

from seed_rl.cluster import roles
from seed_rl.cluster.roles import Role
from seed_rl.common.errors import UserError

POOLS = {
    "workerpool0": ["chief-0:2222"],
    "workerpool1": ["worker-0:2222", "worker-1:2222"],
}
SKYPILOT = {"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2\n10.0.0.3"}


def cluster_spec(pool, index=0, cluster=POOLS):
    return json.dumps({"cluster": cluster, "task": {"type": pool, "index": index}})


@pytest.mark.parametrize(
    ("environment", "role"),
    [
        ({"SEED_RL_ROLE": "learner"}, Role("learner")),
        ({"SEED_RL_ROLE": "learner", "SLURM_ARRAY_TASK_ID": "4"}, Role("learner")),
        ({"SEED_RL_ROLE": "tensorboard"}, Role("tensorboard")),
        ({"SEED_RL_ROLE": "actor", "SEED_RL_INDEX": "3"}, Role("actor", 3)),
        ({"SEED_RL_ROLE": "actor", "SEED_RL_INDEX": "0"}, Role("actor", 0)),
        ({"SEED_RL_ROLE": "evaluator", "SEED_RL_INDEX": "1"}, Role("evaluator", 1)),
        (
            {"SEED_RL_ROLE": "actor", "SEED_RL_INDEX_DIR": "/d"},
            Role("actor", index_dir=pathlib.Path("/d")),
        ),
        ({"SEED_RL_ROLE": "actor", "JOB_COMPLETION_INDEX": "7"}, Role("actor", 7)),
        ({"SEED_RL_ROLE": "evaluator", "SLURM_ARRAY_TASK_ID": "2"}, Role("evaluator", 2)),
        ({"SKYPILOT_NODE_RANK": "0", **SKYPILOT}, Role("learner")),
        ({"SKYPILOT_NODE_RANK": "2", **SKYPILOT}, Role("actor", 1)),
        ({"CLUSTER_SPEC": cluster_spec("workerpool0")}, Role("learner")),
        ({"CLUSTER_SPEC": cluster_spec("workerpool1", 1)}, Role("actor", 1)),
    ],
)
def test_what_each_engine_says(environment, role):
    assert roles.role_from(environment) == role


@pytest.mark.parametrize(
    ("environment", "role"),
    [
        ({"SEED_RL_INDEX": "5", "JOB_COMPLETION_INDEX": "1"}, Role("actor", 5)),
        ({"SEED_RL_INDEX": "5", "SEED_RL_INDEX_DIR": "/d"}, Role("actor", 5)),
        (
            {"SEED_RL_INDEX_DIR": "/d", "JOB_COMPLETION_INDEX": "1"},
            Role("actor", index_dir=pathlib.Path("/d")),
        ),
        ({"SEED_RL_INDEX": "5", "SKYPILOT_NODE_RANK": "2", **SKYPILOT}, Role("actor", 5)),
        ({"SEED_RL_INDEX": "5", "CLUSTER_SPEC": cluster_spec("workerpool1")}, Role("actor", 5)),
        ({"CLUSTER_SPEC": cluster_spec("workerpool1", 1)}, Role("actor", 1)),
        # Of another engine, about other processes.
        ({"SEED_RL_INDEX": "5", "TF_CONFIG": cluster_spec("trainer")}, Role("actor", 5)),
    ],
)
def test_our_variables_win(environment, role):
    """Guards several actors on one node of an engine that numbers nodes."""
    assert roles.role_from({"SEED_RL_ROLE": "actor", **environment}) == role


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "Unknown role of this process: set SEED_RL_ROLE to one of learner, actor, evaluator"),
        ({"JOB_COMPLETION_INDEX": "1"}, "Unknown role of this process"),
        ({"SEED_RL_ROLE": "trainer"}, "SEED_RL_ROLE must be one of .*, not 'trainer'"),
        ({"SEED_RL_ROLE": "actor"}, "Unknown index of this actor: set SEED_RL_INDEX"),
        ({"SEED_RL_ROLE": "evaluator"}, "index of this evaluator"),
        ({"SEED_RL_ROLE": "actor", "SEED_RL_INDEX": "-1"}, "SEED_RL_INDEX must be a number, .*'-1"),
        ({"SEED_RL_ROLE": "actor", "SLURM_ARRAY_TASK_ID": "x"}, "SLURM_ARRAY_TASK_ID must be a"),
        ({"SEED_RL_ROLE": "actor", "SKYPILOT_NODE_RANK": "0"}, "index of this actor"),
        ({"SKYPILOT_NODE_RANK": "first"}, "SKYPILOT_NODE_RANK must be a number"),
        # An evaluator's index must not come from an actor's place in a cluster.
        (
            {"SEED_RL_ROLE": "evaluator", "CLUSTER_SPEC": cluster_spec("workerpool1")},
            "index of this evaluator",
        ),
        ({"CLUSTER_SPEC": "{nonsense"}, r"CLUSTER_SPEC is malformed \(JSONDecodeError"),
        ({"CLUSTER_SPEC": "[]"}, "CLUSTER_SPEC is malformed"),
        ({"CLUSTER_SPEC": '{"cluster": {}}'}, r"malformed \(KeyError: 'task'\): it must be JSON"),
        ({"CLUSTER_SPEC": '{"task": {"type": "worker", "index": "a"}}'}, "malformed .ValueError"),
        ({"CLUSTER_SPEC": cluster_spec("workerpool1", cluster=[1])}, "CLUSTER_SPEC is malformed"),
        ({"CLUSTER_SPEC": cluster_spec("workerpool3")}, "the pool 'workerpool3', which SEED"),
        # Guards a second learner of a run that has one.
        ({"CLUSTER_SPEC": cluster_spec("workerpool2")}, "further learners .*: set --learners=2"),
    ],
)
def test_mistakes(environment, message):
    with pytest.raises(UserError, match=message):
        roles.role_from(environment)


SEVERAL = {**POOLS, "workerpool2": ["ps-0:2222", "ps-1:2222"]}


@pytest.mark.parametrize(
    ("environment", "role"),
    [
        ({"SEED_RL_ROLE": "learner", "SEED_RL_INDEX": "2"}, Role("learner", 2)),
        ({"SEED_RL_ROLE": "learner", "JOB_COMPLETION_INDEX": "1"}, Role("learner", 1)),
        ({"SEED_RL_ROLE": "proxy", "SEED_RL_INDEX": "1"}, Role("proxy", 1)),
        ({"SEED_RL_ROLE": "tensorboard"}, Role("tensorboard")),
        ({"SEED_RL_ROLE": "actor", "JOB_COMPLETION_INDEX": "7"}, Role("actor", 7)),
        ({"SKYPILOT_NODE_RANK": "2", **SKYPILOT}, Role("learner", 2)),
        ({"SKYPILOT_NODE_RANK": "3", **SKYPILOT}, Role("actor", 0)),
        ({"CLUSTER_SPEC": cluster_spec("workerpool0", cluster=SEVERAL)}, Role("learner", 0)),
        ({"CLUSTER_SPEC": cluster_spec("workerpool2", 1, SEVERAL)}, Role("learner", 2)),
        ({"CLUSTER_SPEC": cluster_spec("workerpool1", 1, SEVERAL)}, Role("actor", 1)),
    ],
)
def test_which_of_three_learners(environment, role):
    assert roles.role_from(environment, 3) == role


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (
            {"SEED_RL_ROLE": "learner"},
            "index of this learner, of 3: set SEED_RL_INDEX .*Compose",
        ),
        ({"SEED_RL_ROLE": "learner", "SEED_RL_INDEX_DIR": "/d"}, "index of this learner"),
        ({"SEED_RL_ROLE": "evaluator", "SKYPILOT_NODE_RANK": "0"}, "index of this evaluator"),
        ({"SEED_RL_ROLE": "actor", "SKYPILOT_NODE_RANK": "2"}, "index of this actor"),
        ({"CLUSTER_SPEC": cluster_spec("workerpool2", 2)}, "set --learners=4"),
    ],
)
def test_mistakes_with_three_learners(environment, message):
    with pytest.raises(UserError, match=message):
        roles.role_from(environment, 3)


def test_addresses_of_several_learners():
    """In the order of their indices, whatever that of the pools."""
    unordered = dict(reversed(SEVERAL.items()))
    spec = {"CLUSTER_SPEC": cluster_spec("workerpool1", cluster=unordered)}
    assert roles.address_from(spec, 3) == "chief-0:2222,ps-0:2222,ps-1:2222"
    assert roles.address_from(SKYPILOT, 2) == "10.0.0.1:8686,10.0.0.2:8686"


@pytest.mark.parametrize(
    ("environment", "address"),
    [
        ({}, None),
        ({"SEED_RL_ADDRESS": "learner:1"}, "learner:1"),
        (SKYPILOT, "10.0.0.1:8686"),
        ({"CLUSTER_SPEC": cluster_spec("workerpool1")}, "chief-0:2222"),
        ({"CLUSTER_SPEC": cluster_spec("workerpool1", cluster={})}, None),
        ({"SEED_RL_ADDRESS": "learner:1", **SKYPILOT}, "learner:1"),
    ],
)
def test_address(environment, address):
    assert roles.address_from(environment) == address


def test_evaluators():
    assert roles.evaluators_from({}) == 0
    assert roles.evaluators_from({"SEED_RL_EVALUATORS": "3"}) == 3
    with pytest.raises(UserError, match="SEED_RL_EVALUATORS must be a number"):
        roles.evaluators_from({"SEED_RL_EVALUATORS": "some"})
