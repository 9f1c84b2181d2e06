#!/usr/bin/env python3
"""Submits a run to Google Cloud; see --help and docs/deployment/google_cloud.md."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))  # It runs with any Python, without installing anything.

from gcp import gcloud, job, machines  # noqa: E402
from gcp.job import Plan, Spec  # noqa: E402
from seed_rl import __version__  # noqa: E402
from seed_rl.common.errors import UserError  # noqa: E402
from seed_rl.launch import options as run_options  # noqa: E402

_PREFIX = "SEED_RL_GCP_"
_DESCRIPTION = """\
Submits a run to Google Cloud as a custom job of Vertex AI.

GAME, AGENT, ACTORS, ENVS_PER_ACTOR and --flag=value are those of ./run_local.sh. The run's files
are in gs://BUCKET/runs/NAME; the same command resumes it there.
"""
_EPILOG = f"""\
Each option can be given as a variable of the environment instead: {_PREFIX}PROJECT for --project,
and so on; SEED_RL_REGISTRY and SEED_RL_TAG, as docker/push.sh knows them. Of several values on the
command line the last counts, also for the flags of the program.
"""
_FAMILIES = ("atari", "dmlab", "football", "mujoco")
_REPEATED = ("gin_bindings", "gin_config")  # The program adds up their values.
_OWN_VARIABLES = {"registry": "SEED_RL_REGISTRY", "tag": "SEED_RL_TAG"}


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
        """What messages about gcloud's failures name."""
        return {
            "project": self.project,
            "region": self.region,
            "bucket": self.bucket.partition("/")[0],
            "registry": self.registry,
            "service_account": self.plan.service_account,
        }


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="gcp/submit.py",
        usage="%(prog)s GAME AGENT ACTORS [ENVS_PER_ACTOR] [--option=value ...] [--flag=value ...]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    place = found.add_argument_group("where")
    place.add_argument("--project", help="id of the project that pays")
    place.add_argument("--region", help="such as us-central1; the bucket should be there, too")
    place.add_argument("--bucket", help="of the run's files: BUCKET or gs://BUCKET/FOLDER")
    place.add_argument("--service_account", help="e-mail address of the account of all replicas")
    place.add_argument("--network", help="projects/NUMBER/global/networks/NAME, peered to Vertex")
    place.add_argument("--token_secret", default="seed-rl-token", help="of Secret Manager")
    images = found.add_argument_group("images, as docker/push.sh names them")
    images.add_argument("--registry", help="default: REGION-docker.pkg.dev/PROJECT/seed-rl")
    images.add_argument("--tag", default=__version__)
    images.add_argument("--learner_image", help="instead: the whole name")
    images.add_argument("--actor_image", help="instead: the whole name")
    shapes = found.add_argument_group("machines")
    shapes.add_argument("--learner_machine", help="machine type")
    shapes.add_argument("--learner_accelerator", help="for n1 machines, such as NVIDIA_TESLA_T4")
    shapes.add_argument("--learner_accelerators", type=_count, help="their number")
    shapes.add_argument("--learner_disk_gb", type=_count, default=200)
    shapes.add_argument("--actor_machine", help="machine type of actors and evaluators")
    shapes.add_argument("--actors_per_machine", type=_count, help="default: one per virtual CPU")
    shapes.add_argument("--spot", choices=("none", "actors", "all"), default="none")
    shapes.add_argument("--days", type=float, default=7.0, help="after which the job ends")
    run = found.add_argument_group("run")
    run.add_argument("--name", help="default: GAME-AGENT-ENVIRONMENT")
    run.add_argument("--actors", type=_count, help="instead of ACTORS")
    run.add_argument("--envs_per_actor", type=_count, help="instead of ENVS_PER_ACTOR")
    run.add_argument("--evaluators", type=_natural, default=0, help="a machine for each")
    run.add_argument("--study", help="a file with a StudySpec: tunes hyperparameters")
    run.add_argument("--trials", type=_count, default=20)
    run.add_argument("--parallel_trials", type=_count, default=4)
    run.add_argument("--dry_run", action="store_true", help="print the job; needs no account")
    return found


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> Request:
    """What a command line asks for.

    Args:
      arguments: the command line.
      environment: variables that replace options.

    Raises:
      UserError: something is missing or does not fit together.
    """
    own, rest = _split(arguments)
    defaults = [
        f"--{name}={environment[variable]}"
        for name in _value_options()
        if environment.get(variable := _OWN_VARIABLES.get(name, _PREFIX + name.upper()))
    ]
    given = parser().parse_args([*defaults, *own])
    missing = [
        name
        for name in (
            *("project", "region", "bucket", "service_account"),
            *("learner_machine", "actor_machine"),
        )
        if not getattr(given, name)
    ]
    if missing:
        raise UserError(
            f"{', '.join(f'--{name}' for name in missing)}: give a value, or set "
            f"{', '.join(_PREFIX + name.upper() for name in missing)}."
        )
    positional = [a for a in rest if not a.startswith("--")]
    flags = _last_of_each(_with_flag_files([a for a in rest if a.startswith("--")]))
    for place, value in ((2, given.actors), (3, given.envs_per_actor)):
        if value is not None:
            positional[place:] = [str(value), *positional[place + 1 :]]
    options = run_options.parse([*positional, *(f for f in flags if not _is_logdir(f))])
    if given.spot == "actors" and not given.network:
        raise UserError(
            "--spot=actors rents learner and actors as two jobs, which reach each other only in a "
            "network of yours: --network=projects/NUMBER/global/networks/NAME. Without one: "
            "--spot=all or --spot=none."
        )
    if given.study and given.spot == "actors":
        raise UserError("--study: trials are single jobs; use --spot=all or --spot=none.")
    bucket = given.bucket.removeprefix("gs://").strip("/")
    name = _safe_name(given.name or _default_name(options.game, options.agent, flags))
    logdir = next(
        (f.partition("=")[2] for f in flags if _is_logdir(f)), f"gs://{bucket}/runs/{name}"
    )
    if not logdir.startswith("gs://"):
        raise UserError(f"--logdir={logdir}: machines come and go; it must be gs://BUCKET/...")
    learner = machines.shape(
        given.learner_machine, given.learner_accelerator, given.learner_accelerators
    )
    if machines.shape(given.actor_machine).accelerators:
        raise UserError(
            f"--actor_machine={given.actor_machine} has accelerators, which actors do not use."
        )
    machines.check_devices(flags, learner.accelerators)
    registry = (given.registry or f"{given.region}-docker.pkg.dev/{given.project}/seed-rl").rstrip(
        "/"
    )
    family = options.game if options.game in _FAMILIES else "base"
    gpu = "-gpu" if learner.accelerators else ""
    secret = given.token_secret
    plan = Plan(
        name=name,
        arguments=(*positional, *(f for f in flags if not _is_logdir(f)), f"--logdir={logdir}"),
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
    )
    return Request(
        plan,
        given.project,
        given.region,
        bucket,
        registry,
        pathlib.Path(given.study) if given.study else None,
        given.trials,
        given.parallel_trials,
        given.dry_run,
    )


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
    try:
        study = json.loads(request.study.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"--study={request.study}: {error}") from error
    spec = job.sweep(request.plan, study, request.trials, request.parallel_trials)
    # gcloud has defaults of its own for these numbers, so the file alone does not do.
    options = (
        f"--display-name={request.plan.name}",
        f"--max-trial-count={request.trials}",
        f"--parallel-trial-count={request.parallel_trials}",
    )
    return [(["ai", "hp-tuning-jobs", "create", *place, *options], spec)]


def dry_run(request: Request) -> str:
    """All that would be submitted, as YAML."""
    parts = []
    for arguments, spec in commands(request):
        line = gcloud.command_line([*arguments, "--config=JOB.yaml"])
        parts.append(f"# {line}\n# JOB.yaml:\n{job.to_yaml(spec)}")
    return "---\n".join(parts)


def submit(request: Request) -> str:
    """Checks bucket and images, then submits; returns what to do next.

    Raises:
      UserError: gcloud is missing or fails; the message says what to do.
    """
    names = request.names
    active = ["auth", "list", "--filter=status:ACTIVE", "--format=value(account)"]
    if not gcloud.run(active, names).strip():
        raise UserError("You are not logged in: gcloud auth login")
    bucket = request.plan.logdir.removeprefix("gs://").partition("/")[0]
    gcloud.run(["storage", "buckets", "describe", f"gs://{bucket}"], {**names, "bucket": bucket})
    for image in (request.plan.learner_image, request.plan.actor_image):
        if "-docker.pkg.dev/" in image:
            gcloud.run(["artifacts", "docker", "images", "describe", image], names)
    if request.plan.spot == "actors":
        with contextlib.suppress(UserError):  # There is none unless the run is resumed.
            gcloud.run(["storage", "rm", job.address_object(request.plan)], names)
    for arguments, spec in commands(request):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "job.yaml"
            path.write_text(job.to_yaml(spec), "utf-8")
            print(gcloud.run([*arguments, f"--config={path}"], names), end="")
    kind = "custom-jobs" if request.study is None else "hp-tuning-jobs"
    place = f"--project={request.project} --region={request.region}"
    return (
        f"Submitted {request.plan.name}.\n"
        f"  jobs:    gcloud ai {kind} list {place}\n"
        f"  logs:    gcloud ai {kind} stream-logs JOB {place}\n"
        f"  curves:  tensorboard --logdir={request.plan.logdir}\n"
        f"  end it:  gcloud ai {kind} cancel JOB {place}"
    )


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Divides our options from the run's arguments."""
    names = {name for action in parser()._actions for name in action.option_strings}
    own = [a for a in arguments if a.partition("=")[0] in names]
    return own, [a for a in arguments if a.partition("=")[0] not in names]


def _value_options() -> list[str]:
    actions = parser()._actions
    return [action.dest for action in actions if action.option_strings and action.nargs != 0]


def _with_flag_files(flags: Sequence[str]) -> list[str]:
    """The flags, with those of flag files in their place: images need not have the files."""
    found: list[str] = []
    for flag in flags:
        if not re.match("--flagfile=", flag):
            found.append(flag)
            continue
        path = pathlib.Path(flag.partition("=")[2])
        try:
            lines = (REPOSITORY / path).read_text("utf-8").splitlines()
        except OSError as error:
            raise UserError(f"{flag}: {error.strerror}.") from error
        found += _with_flag_files([line.strip() for line in lines if line.startswith("-")])
    return found


def _last_of_each(flags: Sequence[str]) -> list[str]:
    """The flags without those that a later one overrides."""
    last = {_flag_name(flag): i for i, flag in enumerate(flags)}
    return [
        flag
        for i, flag in enumerate(flags)
        if last[_flag_name(flag)] == i or _flag_name(flag) in _REPEATED
    ]


def _flag_name(flag: str) -> str:
    return flag.lstrip("-").partition("=")[0]


def _is_logdir(flag: str) -> bool:
    return _flag_name(flag) == "logdir"


def _default_name(game: str, agent: str, flags: Sequence[str]) -> str:
    given = {_flag_name(flag): flag.partition("=")[2] for flag in flags}
    environment = given.get("game") or given.get("env_name") or ""
    program = pathlib.Path(game).stem if game.endswith(".py") else game
    return "-".join(part for part in (program, agent, environment) if part)


def _safe_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:100]


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"must be a positive integer, not '{text}'")
    return int(text)


def _natural(text: str) -> int:
    return 0 if text == "0" else _count(text)


def main(arguments: Sequence[str]) -> int:
    if "--help" in arguments or "-h" in arguments:
        parser().print_help()
        return 0
    try:
        request = parse(arguments, os.environ)
        print(dry_run(request) if request.dry_run else submit(request), end="")
        if not request.dry_run:
            print()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
