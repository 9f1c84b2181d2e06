"""Which process of a run this one is, from the environment that the engine set.

The variables `SEED_RL_*` work for any engine and override an engine's own.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Mapping

from seed_rl.common.errors import UserError
from seed_rl.launch.arguments import DEFAULT_PORT

LEARNER = "learner"
ACTOR = "actor"
EVALUATOR = "evaluator"
TENSORBOARD = "tensorboard"
PROXY = "proxy"
ROLES = (LEARNER, ACTOR, EVALUATOR, TENSORBOARD, PROXY)

_INDICES = ("SEED_RL_INDEX", "JOB_COMPLETION_INDEX", "SLURM_ARRAY_TASK_ID")
_INDEX_DIR = "SEED_RL_INDEX_DIR"
_RANK, _NODES = "SKYPILOT_NODE_RANK", "SKYPILOT_NODE_IPS"
# The pools of Google's custom jobs. The first can only have one replica, so further learners are in
# the third.
_CLUSTER_SPEC = "CLUSTER_SPEC"
_FIRST, _FURTHER = "workerpool0", "workerpool2"
_POOLS = {_FIRST: LEARNER, "workerpool1": ACTOR, _FURTHER: LEARNER}
_NO_ROLE = (
    "Unknown role of this process: set SEED_RL_ROLE to one of "
    f"{', '.join(ROLES)}. (SkyPilot's {_RANK} and Google's {_CLUSTER_SPEC} also work.)"
)


@dataclasses.dataclass(frozen=True)
class Role:
    """What a process is.

    Attributes:
      kind: one of `ROLES`.
      index: of an actor among the actors, of an evaluator among the evaluators, of a learner (and
        its proxy) among several; 0 for others.
      index_dir: instead of the index: the directory in which to claim one.
    """

    kind: str
    index: int = 0
    index_dir: pathlib.Path | None = None


def role_from(environment: Mapping[str, str], learners: int = 1) -> Role:
    """The role of this process.

    Args:
      environment: its environment variables.
      learners: of the run.

    Raises:
      UserError: the role is missing or invalid.
    """
    task = cluster_task(environment)
    rank = number(environment, _RANK)
    kind = environment.get("SEED_RL_ROLE")
    if not kind:
        if task is not None:
            kind = task.kind
        elif rank is not None:
            kind = ACTOR if rank >= learners else LEARNER
        else:
            raise UserError(_NO_ROLE)
    if kind not in ROLES:
        raise UserError(f"SEED_RL_ROLE must be one of {', '.join(ROLES)}, not '{kind}'.")
    if task is not None and task.kind == kind == LEARNER and task.index >= learners:
        raise UserError(
            f"This process is in the pool of further learners ({_FURTHER}): set "
            f"--learners={task.index + 1} or more on the command line of all processes."
        )
    serves = kind in (LEARNER, PROXY)
    if kind == TENSORBOARD or (serves and learners == 1):
        return Role(kind)
    claims = not serves and environment.get(_INDEX_DIR)
    if claims and not environment.get("SEED_RL_INDEX"):
        return Role(kind, index_dir=pathlib.Path(environment[_INDEX_DIR]))
    for name in _INDICES:
        if (index := number(environment, name)) is not None:
            return Role(kind, index)
    if task is not None and task.kind == kind:
        return Role(kind, task.index)
    if kind == ACTOR and rank is not None and rank >= learners:
        return Role(kind, rank - learners)
    if serves and rank is not None and rank < learners:
        return Role(kind, rank)
    if serves:
        raise UserError(
            f"Unknown index of this {kind}, of {learners}: set SEED_RL_INDEX to its index, from 0. "
            "(JOB_COMPLETION_INDEX of Kubernetes also works. Docker Compose starts one learner: "
            "leave --learners out there.)"
        )
    raise UserError(
        f"Unknown index of this {kind}: set SEED_RL_INDEX to its index, from 0, or "
        f"{_INDEX_DIR} to a directory that all of them share. (JOB_COMPLETION_INDEX of Kubernetes "
        "and SLURM_ARRAY_TASK_ID also work.)"
    )


def address_from(environment: Mapping[str, str], learners: int = 1) -> str | None:
    """The learner's address as actors reach it; None if the environment does not say.

    Args:
      environment: environment variables.
      learners: of the run; of several, the addresses are separated by commas.

    Raises:
      UserError: an engine's variables are invalid.
    """
    if address := environment.get("SEED_RL_ADDRESS"):
        return address
    if task := cluster_task(environment):
        return task.learner
    if nodes := environment.get(_NODES, "").split():
        return ",".join(f"{node}:{DEFAULT_PORT}" for node in nodes[:learners])
    return None


def restarted(environment: Mapping[str, str]) -> bool:
    """Whether an engine has started this process again, or may have: not all of them say.

    Raises:
      UserError: an engine's variables are invalid.
    """
    again = number(environment, "SLURM_RESTART_COUNT")
    silent = ("JOB_COMPLETION_INDEX", _CLUSTER_SPEC)  # Kubernetes and Google.
    return bool(again) or any(environment.get(name) for name in silent)


def evaluators_from(environment: Mapping[str, str]) -> int:
    """The number of evaluators of the run.

    Raises:
      UserError: it is not a number.
    """
    return number(environment, "SEED_RL_EVALUATORS") or 0


@dataclasses.dataclass(frozen=True)
class ClusterTask:
    """This process and the learners' addresses, from Google's custom jobs."""

    kind: str
    index: int
    learner: str | None


def cluster_task(environment: Mapping[str, str]) -> ClusterTask | None:
    """What Google's custom jobs say of this process; None: it is in none.

    Raises:
      UserError: their description is malformed, or puts it into an unknown pool.
    """
    text = environment.get(_CLUSTER_SPEC)
    if not text:
        return None
    try:
        spec = json.loads(text)
        pool, index = str(spec["task"]["type"]), int(spec["task"]["index"])
        hosts = {name: [str(host) for host in known] for name, known in spec["cluster"].items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"{_CLUSTER_SPEC} is malformed ({type(error).__name__}: {error}): it must be JSON like "
            '{"cluster": {"workerpool0": ["HOST:PORT"], ...}, "task": {"type": "workerpool1", '
            '"index": 0}}. If it is not meant for this run, unset it, and set SEED_RL_ROLE, '
            "SEED_RL_INDEX and SEED_RL_ADDRESS."
        ) from error
    if pool not in _POOLS:
        raise UserError(
            f"{_CLUSTER_SPEC} puts this process into the pool '{pool}', which SEED RL does not "
            "use: workerpool0 is the learner, workerpool1 are the actors, workerpool2 further "
            "learners. Evaluators run on the actors' machines."
        )
    learners = [host for name in (_FIRST, _FURTHER) for host in hosts.get(name, ())]
    return ClusterTask(_POOLS[pool], index + (pool == _FURTHER), ",".join(learners) or None)


def number(environment: Mapping[str, str], name: str, least: int = 0) -> int | None:
    """The number in a variable; None: it is not set.

    Raises:
      UserError: it is not a number, or below `least`.
    """
    text = environment.get(name)
    if not text:
        return None
    if not text.isdecimal() or int(text) < least:
        raise UserError(f"{name} must be a number, from {least} upwards, not '{text}'.")
    return int(text)
