"""A run as custom jobs of Vertex AI: `CustomJobSpec` and `HyperparameterTuningJob` of its API v1.

https://cloud.google.com/vertex-ai/docs/reference/rest/v1/CustomJobSpec
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from typing import Any

from gcp.machines import Shape, disk_type

MOUNTED = "/mnt/nfs/runs"
"""Where the service mounts a share of the name `runs`."""
_COMMAND = ["python", "-m", "seed_rl.cluster.google_cloud"]
_ACTOR_DISK_GB = 100  # The API's default.

Spec = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to run, and on which machines.

    Attributes:
      name: of the run, for the console.
      arguments: GAME AGENT ACTORS [ENVS_PER_ACTOR] and flags, with the logdir.
      logdir: gs://BUCKET/..., or a directory of `nfs`.
      learner: its machine.
      learner_image: its image.
      actor_machine: machine type of actors and evaluators, which share machines.
      actor_image: their image.
      actors: number of actors.
      actors_per_machine: how many of them share a machine.
      evaluators: number of evaluators.
      service_account: as which all replicas run.
      token_secret: projects/PROJECT/secrets/SECRET.
      days: after which the service ends the job.
      disk_gb: size of the learner's disk.
      network: VPC that the replicas are in; None: one of their own.
      spot: "none", "actors" or "all": which machines may be taken away and cost less.
      learners: their number, each on a machine.
      nfs: IP:/PATH of a share that all learners mount at `MOUNTED`; None: there is none.
    """

    name: str
    arguments: tuple[str, ...]
    logdir: str
    learner: Shape
    learner_image: str
    actor_machine: str
    actor_image: str
    actors: int
    actors_per_machine: int
    evaluators: int
    service_account: str
    token_secret: str
    days: float
    disk_gb: int
    network: str | None = None
    spot: str = "none"
    learners: int = 1
    nfs: str | None = None

    @property
    def machines(self) -> int:
        """Number of machines for actors."""
        return math.ceil(self.actors / self.actors_per_machine)


def address_object(plan: Plan) -> str:
    """Where a learner writes its address for actors of another job: beside the run's files."""
    return f"{plan.logdir.rstrip('/')}.learner_address"


def jobs(plan: Plan) -> dict[str, Spec]:
    """The jobs of a run by their names: one, or two if only the actors are on spot machines.

    The service rents all machines of a job in one way (`scheduling.strategy`), so spot actors with
    a learner that stays need a job of their own. They find its address in the bucket.
    """
    if plan.spot != "actors":
        pools = [_learner_pool(plan), _actor_pool(plan, plan.machines, {})]
        if plan.learners > 1:  # By position: learner, actors, further learners.
            pools.append({**_learner_pool(plan), "replicaCount": plan.learners - 1})
        return {plan.name: _job(plan, pools, plan.spot)}
    shared = {"SEED_RL_ADDRESS_OBJECT": address_object(plan)}
    role = {**shared, "SEED_RL_ROLE": "actor"}
    # The first pool always has one replica.
    actors = [_actor_pool(plan, 1, {**role, "SEED_RL_FIRST_MACHINE": "0"})]
    if plan.machines > 1:
        actors.append(_actor_pool(plan, plan.machines - 1, {**role, "SEED_RL_FIRST_MACHINE": "1"}))
    return {
        plan.name: _job(plan, [_learner_pool(plan, shared)], "none"),
        f"{plan.name}-actors": _job(plan, actors, "all"),
    }


def sweep(plan: Plan, study: Spec, trials: int, parallel: int) -> Spec:
    """A tuning job whose trials are runs.

    Args:
      plan: of each trial; the service adds the trial's hyperparameters to its flags.
      study: the API's `StudySpec`.
      trials: their number.
      parallel: how many run at a time.
    """
    [trial] = jobs(plan).values()
    return {
        "displayName": plan.name,
        "studySpec": study,
        "maxTrialCount": trials,
        "parallelTrialCount": parallel,
        "trialJobSpec": trial,
    }


def _job(plan: Plan, pools: list[Spec], spot: str) -> Spec:
    spec: Spec = {
        "workerPoolSpecs": pools,
        "scheduling": {
            "timeout": f"{round(plan.days * 86400)}s",
            # A replaced machine finds the others at the same addresses.
            "restartJobOnWorkerRestart": False,
            "strategy": "SPOT" if spot == "all" else "STANDARD",
        },
        "serviceAccount": plan.service_account,
    }
    if plan.network:
        spec["network"] = plan.network
    return spec


def _learner_pool(plan: Plan, variables: dict[str, str] | None = None) -> Spec:
    machine: Spec = {"machineType": plan.learner.machine_type}
    if plan.learner.accelerators:
        machine["acceleratorType"] = plan.learner.accelerator
        machine["acceleratorCount"] = plan.learner.accelerators
    pool = {
        "machineSpec": machine,
        "replicaCount": 1,
        "diskSpec": _disk(plan.learner.machine_type, plan.disk_gb),
        "containerSpec": _container(plan, plan.learner_image, variables or {}),
    }
    if plan.nfs:
        server, _, path = plan.nfs.partition(":")
        mount = {"server": server, "path": path, "mountPoint": MOUNTED.rpartition("/")[2]}
        pool["nfsMounts"] = [mount]
    return pool


def _actor_pool(plan: Plan, replicas: int, variables: dict[str, str]) -> Spec:
    several = {"SEED_RL_ACTORS_PER_MACHINE": str(plan.actors_per_machine), **variables}
    return {
        "machineSpec": {"machineType": plan.actor_machine},
        "replicaCount": replicas,
        "diskSpec": _disk(plan.actor_machine, _ACTOR_DISK_GB),
        "containerSpec": _container(plan, plan.actor_image, several),
    }


def _disk(machine_type: str, size_gb: int) -> Spec:
    return {"bootDiskType": disk_type(machine_type), "bootDiskSizeGb": size_gb}


def _container(plan: Plan, image: str, variables: dict[str, str]) -> Spec:
    variables = {"SEED_RL_TOKEN_SECRET": plan.token_secret, **variables}
    if plan.evaluators:
        variables["SEED_RL_EVALUATORS"] = str(plan.evaluators)
    return {
        "imageUri": image,
        "command": _COMMAND,
        "args": list(plan.arguments),
        "env": [{"name": name, "value": value} for name, value in variables.items()],
    }


def to_yaml(value: Any) -> str:
    """Objects, lists and scalars as JSON, which is YAML; no package needed."""
    text = json.dumps(value, indent=2)
    # YAML 1.1 takes 5e-05 for a string, but not 5.0e-05.
    return re.sub(r'(?m)^(\s*(?:"[^"]*": )?-?\d+)e', r"\1.0e", text) + "\n"
