"""The command line of gcp/submit.py: its options, and variables that replace them."""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Mapping, Sequence

from seed_rl import __version__
from seed_rl.common.errors import UserError

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
_OWN_VARIABLES = {"registry": "SEED_RL_REGISTRY", "tag": "SEED_RL_TAG"}
_NEEDED = (
    *("project", "region", "bucket", "service_account"),
    *("learner_machine", "actor_machine"),
)


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
    place.add_argument("--nfs", help="IP:/PATH of the files of a run with several --learners")
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
    shapes.add_argument("--days", type=_positive, default=7.0, help="after which the job ends")
    run = found.add_argument_group("run")
    run.add_argument("--name", help="default: GAME-AGENT-ENVIRONMENT")
    run.add_argument("--actors", type=_count, help="instead of ACTORS")
    run.add_argument("--envs_per_actor", type=_count, help="instead of ENVS_PER_ACTOR")
    run.add_argument("--evaluators", type=_natural, default=0, help="on the actors' machines")
    run.add_argument("--study", help="a file with a StudySpec: tunes hyperparameters")
    run.add_argument("--trials", type=_count, default=20)
    run.add_argument("--parallel_trials", type=_count, default=4)
    run.add_argument("--dry_run", action="store_true", help="print the job; needs no account")
    return found


def read(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> tuple[argparse.Namespace, list[str]]:
    """Reads the options of submit.py.

    Args:
      arguments: the command line.
      environment: variables that replace options.

    Returns:
      The options, and the run's own arguments.

    Raises:
      UserError: an option without which there is no job is missing.
    """
    defaults = [
        f"--{name}={environment[variable]}"
        for name in _value_options()
        if environment.get(variable := _OWN_VARIABLES.get(name, _PREFIX + name.upper()))
    ]
    given, rest = parser().parse_known_args([*defaults, *arguments])
    if missing := [name for name in _NEEDED if not getattr(given, name)]:
        raise UserError(
            f"{', '.join(f'--{name}' for name in missing)}: give a value, or set "
            f"{', '.join(_PREFIX + name.upper() for name in missing)}."
        )
    return given, rest


def _value_options() -> list[str]:
    actions = parser()._actions
    return [action.dest for action in actions if action.option_strings and action.nargs != 0]


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"must be a positive integer, not '{text}'")
    return int(text)


def _positive(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (number := float(text)) < math.inf:
            return number
    raise argparse.ArgumentTypeError(f"must be a positive number, not '{text}'")


def _natural(text: str) -> int:
    return 0 if text == "0" else _count(text)
