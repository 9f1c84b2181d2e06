#!/usr/bin/env python3
"""Submits a run to Google Cloud; see --help and docs/deployment/google_cloud.md."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping, Sequence

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))  # It runs with any Python, without installing anything.

from gcp import command_line, gcloud, job, machines, prices  # noqa: E402
from gcp.job import Plan, Spec  # noqa: E402
from seed_rl.common.errors import UserError, exits  # noqa: E402
from seed_rl.common.system import flag_files  # noqa: E402
from seed_rl.launch import arguments as run_arguments  # noqa: E402

_HOLDING = {f"JOB_STATE_{s}" for s in ("QUEUED", "PENDING", "RUNNING", "CANCELLING", "PAUSED")}
_FAMILIES = ("atari", "dmlab", "football", "mujoco")


@dataclasses.dataclass(frozen=True)
class Request:
    """What one call asks for.

    Attributes:
      plan: the run.
      project: Google Cloud project.
      region: of the machines.
      bucket: of the run's files, with the folder.
      registry: of the images.
      study: path of a `StudySpec`, for tuning; None: one run.
      trials: number of runs of the study.
      parallel_trials: how many at a time.
      dry_run: whether to only print the job.
    """

    plan: Plan
    project: str
    region: str
    bucket: str
    registry: str
    study: pathlib.Path | None
    trials: int
    parallel_trials: int
    dry_run: bool

    @property
    def names(self) -> dict[str, str]:
        """The names in messages about gcloud's failures."""
        return {
            "project": self.project,
            "region": self.region,
            "bucket": self.bucket.partition("/")[0],
            "registry": self.registry,
            "service_account": self.plan.service_account,
        }


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> Request:
    """What a command line asks for.

    Args:
      arguments: the command line.
      environment: variables that replace options.

    Raises:
      UserError: something is missing or does not fit together.
    """
    given, rest = command_line.read(arguments, environment)
    _check_spot(given)
    bucket = given.bucket.removeprefix("gs://").strip("/")
    registry = given.registry or f"{given.region}-docker.pkg.dev/{given.project}/seed-rl"
    registry = registry.rstrip("/")
    return Request(
        plan=_plan(given, rest, bucket, registry),
        project=given.project,
        region=given.region,
        bucket=bucket,
        registry=registry,
        study=pathlib.Path(given.study) if given.study else None,
        trials=given.trials,
        parallel_trials=min(given.parallel_trials, given.trials),
        dry_run=given.dry_run,
    )


def _check_spot(given: argparse.Namespace) -> None:
    if given.spot == "actors" and not given.network:
        raise UserError(
            "--spot=actors rents learner and actors as two jobs, which reach each other only in a "
            "network of yours: --network=projects/NUMBER/global/networks/NAME. Without one: "
            "--spot=all or --spot=none."
        )
    if given.study and given.spot == "actors":
        raise UserError("--study: trials are single jobs; use --spot=all or --spot=none.")


def _plan(given: argparse.Namespace, rest: Sequence[str], bucket: str, registry: str) -> Plan:
    """The run on its machines, from its own arguments and the options beside them."""
    positional = _positional(given, rest)
    all_flags = [f for f, _ in flag_files.expanded([a for a in rest if a.startswith("--")])]
    flags = [f for f in all_flags if _name(f) not in ("logdir", "job-dir")]
    logdirs = [f.partition("=")[2] for f in all_flags if f not in flags]
    options = run_arguments.parse([*positional, *flags])
    name = given.name or _default_name(options.game, options.agent, flags)
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:100]  # Valid for jobs and folders.
    logdir = logdirs[-1] if logdirs else f"gs://{bucket}/runs/{name}"
    if options.learners > 1 or given.nfs:
        _check_several(given, flags, options.learners, bool(logdirs))
        logdir = f"{job.MOUNTED}/{name}"
    elif not logdir.startswith("gs://"):
        raise UserError(f"--logdir={logdir}: machines are temporary; use gs://BUCKET/...")
    learner = machines.shape(
        given.learner_machine, given.learner_accelerator, given.learner_accelerators
    )
    machines.check_devices(flags, learner.accelerators, options.learners)
    if machines.shape(given.actor_machine).accelerators:
        raise UserError(
            f"--actor_machine={given.actor_machine} has accelerators, which actors do not use."
        )
    family = options.game if options.game in _FAMILIES else "base"
    gpu = "-gpu" if learner.accelerators else ""
    secret = given.token_secret
    return Plan(
        name=name,
        arguments=(*positional, *flags, f"--logdir={logdir}"),
        logdir=logdir,
        learner=learner,
        learner_image=given.learner_image or f"{registry}/seed-rl-{family}:{given.tag}{gpu}",
        actor_machine=given.actor_machine,
        actor_image=given.actor_image or f"{registry}/seed-rl-{family}-actor:{given.tag}",
        actors=options.actors,
        actors_per_machine=given.actors_per_machine or machines.cores(given.actor_machine),
        evaluators=given.evaluators,
        service_account=given.service_account,
        token_secret=secret if "/" in secret else f"projects/{given.project}/secrets/{secret}",
        days=given.days,
        disk_gb=given.learner_disk_gb,
        network=given.network,
        spot=given.spot,
        learners=options.learners,
        nfs=given.nfs,
    )


def _positional(given: argparse.Namespace, rest: Sequence[str]) -> list[str]:
    """GAME AGENT ACTORS [ENVS_PER_ACTOR]; --actors and --envs_per_actor replace the last two."""
    positional = [a for a in rest if not a.startswith("--")]
    # The user's own program may have no AGENT.
    actors = next((i for i, a in enumerate(positional) if i and a.isdecimal()), 2)
    for place, value in ((actors, given.actors), (actors + 1, given.envs_per_actor)):
        if value is not None:
            positional[place:] = [str(value), *positional[place + 1 :]]
    return positional


def _name(flag: str) -> str:
    return flag.lstrip("-").partition("=")[0]


def _default_name(game: str, agent: str, flags: Sequence[str]) -> str:
    """GAME-AGENT-ENVIRONMENT, as far as the command line names them."""
    given = {_name(flag): flag.partition("=")[2] for flag in flags}
    environment = given.get("game") or given.get("env_name") or given.get("env") or ""
    program = pathlib.Path(game).stem if game.endswith(".py") else game
    return "-".join(part for part in (program, agent, environment) if part)


def _check_several(
    given: argparse.Namespace, flags: Sequence[str], learners: int, has_logdir: bool
) -> None:
    """Checks what several learners need.

    Raises:
      UserError: something is missing or does not fit.
    """
    if learners == 1:
        raise UserError("--nfs is for several learners: --learners=N. Others use the bucket.")
    if given.study or given.spot == "actors":
        raise UserError(
            f"--learners={learners} cannot be combined with --study or --spot=actors: all of the "
            "run must be one job."
        )
    if has_logdir or not given.nfs or not given.network:
        raise UserError(
            f"{learners} learners need a directory that all of them see, which a bucket is not: "
            "give a share of your network (Filestore) with --nfs=IP:/PATH and --network. The run's "
            "directory there is that of its --name; leave --logdir out."
        )
    if not re.fullmatch(r"[0-9.]+:/\S*", given.nfs):
        raise UserError(f"--nfs={given.nfs}: write IP:/PATH, such as 10.0.0.2:/runs.")
    if "insecure" not in map(_name, flags):
        raise UserError(
            f"{learners} learners exchange gradients without token or encryption: if only machines "
            "that you trust are in --network, add --insecure."
        )


def check_flags(request: Request, environment: Mapping[str, str]) -> None:
    """Has the program check its flags, or warns that its packages are not on this machine.

    The Python with the packages is PYTHON, or else that of the checkout's .venv. The parameters of
    a study are flags, too.

    Args:
      request: what is to be submitted.
      environment: of this process.

    Raises:
      UserError: a flag is wrong, or the study cannot be read.
    """
    plan = request.plan
    tried = [] if request.study is None else _tried_flags(_read_study(request.study))
    installed = REPOSITORY / ".venv/bin/python"
    python = environment.get("PYTHON") or (str(installed) if installed.exists() else sys.executable)
    path = os.pathsep.join(filter(None, (str(REPOSITORY), environment.get("PYTHONPATH"))))
    try:
        asked = subprocess.run(
            [python, "-m", "seed_rl.cluster.flag_check", *plan.arguments, *tried],
            env={**environment, "PYTHONPATH": path, "SEED_RL_EVALUATORS": str(plan.evaluators)},
            capture_output=True,
            text=True,
        )
    except OSError as error:
        raise UserError(f"PYTHON={python}: {error.strerror}.") from error
    if asked.returncode:
        raise UserError(asked.stderr.strip().removeprefix("error: "))
    print(asked.stderr, end="", file=sys.stderr)


def _read_study(path: pathlib.Path) -> Spec:
    try:
        study = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"--study={path}: {error}") from error
    if not isinstance(study, dict):
        raise UserError(f"--study={path}: it must be a StudySpec, as gcp/studies has one.")
    return study


def _tried_flags(study: Spec) -> list[str]:
    """What a trial might have: each parameter with its first value."""
    found = []
    try:
        for parameter in study["parameters"]:
            for name, spec in parameter.items():
                if name.endswith("ValueSpec"):
                    value = spec["minValue"] if "minValue" in spec else spec["values"][0]
                    found.append(f"--{parameter['parameterId']}={value}")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise UserError(
            f"--study: a parameter is malformed ({type(error).__name__}: {error}); it must be as "
            "in gcp/studies/atari_vtrace.json."
        ) from error
    return found


def commands(request: Request) -> list[tuple[list[str], Spec]]:
    """The calls of gcloud without --config, and the configuration of each.

    Raises:
      UserError: the study cannot be read.
    """
    place = [f"--project={request.project}", f"--region={request.region}"]
    if request.study is None:
        return [
            (["ai", "custom-jobs", "create", *place, f"--display-name={name}"], spec)
            for name, spec in job.jobs(request.plan).items()
        ]
    study = _read_study(request.study)
    spec = job.sweep(request.plan, study, request.trials, request.parallel_trials)
    # gcloud has its own defaults for these numbers, which override the file.
    options = (
        f"--display-name={request.plan.name}",
        f"--max-trial-count={request.trials}",
        f"--parallel-trial-count={request.parallel_trials}",
    )
    return [(["ai", "hp-tuning-jobs", "create", *place, *options], spec)]


def dry_run(request: Request) -> str:
    """All that would be submitted, as YAML, and in comments what it costs."""
    parts = []
    for arguments, spec in commands(request):
        line = shlex.join(["gcloud", *arguments, "--config=JOB.yaml"])
        parts.append(f"# {line}\n# JOB.yaml:\n{job.to_yaml(spec)}")
    return "---\n".join(parts) + textwrap.indent(price(request), "# ") + "\n"


def price(request: Request) -> str:
    """What the machines cost; see `prices.estimate`."""
    return prices.estimate([spec for _, spec in commands(request)])


def _check_free(request: Request, kind: str, place: str) -> None:
    """Refuses a run one of whose jobs has not ended: two learners cannot write the same files.

    Raises:
      UserError: one has not; the message says how to end it.
    """
    ours = request.plan.name, f"{request.plan.name}-actors"
    listed = gcloud.run(
        ["ai", kind, "list", *place.split(), "--format=value(displayName,state,name)"],
        request.names,
    )
    for line in listed.splitlines():
        name, state, job_name = (*line.split("\t"), "", "")[:3]
        if name in ours and state in _HOLDING:
            raise UserError(
                f"The run {request.plan.name} has a job already: {job_name} ({state}). Cancel it: "
                f"gcloud ai {kind} cancel {job_name} {place}. The same command then resumes the "
                "run. Or choose another --name."
            )


def submit(request: Request) -> str:
    """Checks bucket and images, prints the price, submits; returns what to do next.

    Raises:
      UserError: gcloud is missing or fails; the message says what to do.
    """
    names = request.names
    active = ["auth", "list", "--filter=status:ACTIVE", "--format=value(account)"]
    if not gcloud.run(active, names).strip():
        raise UserError("You are not logged in: gcloud auth login")
    if not request.plan.nfs:
        bucket = request.plan.logdir.removeprefix("gs://").partition("/")[0]
        described = ["storage", "buckets", "describe", f"gs://{bucket}"]
        gcloud.run(described, {**names, "bucket": bucket})
    for image in (request.plan.learner_image, request.plan.actor_image):
        if "-docker.pkg.dev/" in image:
            gcloud.run(["artifacts", "docker", "images", "describe", image], names)
    kind = "custom-jobs" if request.study is None else "hp-tuning-jobs"
    place = f"--project={request.project} --region={request.region}"
    _check_free(request, kind, place)
    if request.plan.spot == "actors":
        try:
            gcloud.run(["storage", "rm", job.address_object(request.plan)], names)
        except UserError as error:
            # There is none unless the run is resumed. One that stays could end all actors.
            if "matched no objects" not in str(error):
                raise
    print(price(request), flush=True)
    listing, cancelling = f"gcloud ai {kind} list {place}", f"gcloud ai {kind} cancel JOB {place}"
    for number, (arguments, spec) in enumerate(commands(request)):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "job.yaml"
            path.write_text(job.to_yaml(spec), "utf-8")
            try:
                print(gcloud.run([*arguments, f"--config={path}"], names), end="")
            except UserError as error:
                if not number:
                    raise
                raise UserError(
                    f"{error}. The run's first job has been submitted and costs money. To end it: "
                    f"{listing} shows its name, then {cancelling}"
                ) from error
    return (
        f"Submitted {request.plan.name}.\n"
        f"  jobs:    {listing}\n"
        f"  logs:    gcloud ai {kind} stream-logs JOB {place}\n"
        f"  curves:  tensorboard --logdir={_seen(request.plan)}\n"
        f"  end it:  {cancelling}"
    )


def _seen(plan: Plan) -> str:
    """The logdir, as the user reaches it."""
    if not plan.nfs:
        return plan.logdir
    return f"{plan.name} (on the share {plan.nfs})"


@exits
def main(arguments: Sequence[str]) -> int:
    if "--help" in arguments or "-h" in arguments:
        command_line.parser().print_help()
        return 0
    request = parse(arguments, os.environ)
    check_flags(request, os.environ)
    if request.dry_run:
        print(dry_run(request), end="")
    else:
        print(submit(request))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
