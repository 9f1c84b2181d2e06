"""One replica of a custom job on Google Cloud (Vertex AI): what `gcp/submit.py` has it run.

The service says in CLUSTER_SPEC which replica this is; `seed_rl.cluster` does the rest. This module
adds the token from Secret Manager, several actors on one machine, a learner and actors in separate
jobs, and trials of hyperparameter tuning.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from seed_rl.cluster import __main__ as cluster
from seed_rl.cluster import roles, run, say, tuning
from seed_rl.cluster.google_api import GoogleApi, UnavailableError
from seed_rl.cluster.machine import STOPPED, Machine
from seed_rl.cluster.secrets import TOKEN
from seed_rl.common.errors import UserError, exits
from seed_rl.common.system import terminal
from seed_rl.launch.arguments import DEFAULT_PORT
from seed_rl.launch.process import die_with_parent

USAGE = """\
usage: python -m seed_rl.cluster.google_cloud GAME AGENT ACTORS [ENVS_PER_ACTOR] [--flag=value ...]

Becomes one replica of a custom job: like python -m seed_rl.cluster (see its --help), with

  SEED_RL_TOKEN_SECRET        projects/PROJECT/secrets/SECRET in Secret Manager: the run's token
  SEED_RL_ACTORS_PER_MACHINE  number of actors that a replica of pool 1 starts (default: 1)
  SEED_RL_EVALUATORS          number of evaluators, which the same replicas start in turn
  SEED_RL_ADDRESS_OBJECT      gs://BUCKET/NAME, for actors in another job than the learner: the
                              learner, whose --logdir must be a URL, writes its address there, and
                              actors look it up
  SEED_RL_FIRST_MACHINE       added to the replica's index (default: 0)
"""
_DONE = b"done"
_REPORT_S = 60.0
_PERIOD_S = 5.0


@exits
def main(arguments: Sequence[str]) -> int:
    if "--help" in arguments or "-h" in arguments:
        terminal.end_without_reader()
        print(USAGE, end="")
        return 0
    _prepare_token(os.environ)
    # The service takes exit code 0 for the end of the job, and restarts replicas that exit with any
    # other.
    arguments = [f"--stopped_exit_code={STOPPED}", *arguments]
    options, _ = run.parse(arguments, roles.evaluators_from(os.environ))
    # Spot actors are the first pool of a separate job, which would otherwise count as the learner.
    kind = os.environ.get("SEED_RL_ROLE") or roles.role_from(os.environ, options.learners).kind
    if kind == roles.LEARNER and options.learners == 1:
        return _learner(arguments, os.environ)
    if kind == roles.ACTOR:
        return _actors(arguments, os.environ)
    # Several learners need --insecure from the user, and use no bucket: there is nothing to add.
    return cluster.main(arguments)


def _prepare_token(environment: dict[str, str] | os._Environ[str]) -> None:
    """Writes the token to a file that only this user can read."""
    name = environment.get("SEED_RL_TOKEN_SECRET")
    if not name:
        return
    token = GoogleApi().secret(name)
    directory = Path(tempfile.mkdtemp(prefix="seed_rl-secrets-"))  # Mode 700.
    descriptor = os.open(directory / TOKEN, os.O_WRONLY | os.O_CREAT, 0o600)
    with open(descriptor, "wb") as file:
        file.write(token)
    environment["SEED_RL_SECRETS"] = str(directory)


def _learner(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    reporter = tuning.Reporter(environment)
    place = environment.get("SEED_RL_ADDRESS_OBJECT")

    def after_copy(logdir: Path) -> None:
        if tuning.trial_from(environment):
            reporter.report(logdir)
        if place:  # Not before: a learner that is refused must not draw the actors away.
            GoogleApi().write(place, own_address(environment).encode())

    # Its port can only be reached from the project's network.
    code = cluster.main([*with_trial(arguments, environment), "--insecure"], after_copy)
    if place and code == 0:
        GoogleApi().write(place, _DONE)
    return code


def with_trial(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The arguments, with a logdir of its own for each trial."""
    trial = tuning.trial_from(environment)
    _, logdir = run.parse(arguments, roles.evaluators_from(environment))
    if trial is None or logdir is None:
        return list(arguments)
    return [*arguments, f"--logdir={logdir.rstrip('/')}/trial-{trial}"]


def own_address(environment: Mapping[str, str]) -> str:
    """This machine's address in the network that its job is in: IP:PORT."""
    port = (roles.address_from(environment) or f":{DEFAULT_PORT}").rpartition(":")[2]
    return f"{socket.gethostbyname(socket.gethostname())}:{port}"


def machine_index(environment: Mapping[str, str]) -> int:
    """Which machine of actors this is, from 0.

    Raises:
      UserError: the environment does not say.
    """
    task = roles.cluster_task(environment)
    if task is None:
        raise UserError(
            "CLUSTER_SPEC is not set; Google's custom jobs set it. Elsewhere, use python -m "
            "seed_rl.cluster."
        )
    return task.index + (roles.number(environment, "SEED_RL_FIRST_MACHINE") or 0)


def tasks(actors: int, evaluators: int, environment: Mapping[str, str]) -> list[int]:
    """The actors and evaluators of this machine; evaluators are numbered from `actors` on.

    Actors fill one machine after another; evaluators are dealt out to all of them in turn.

    Args:
      actors: their number in the whole run.
      evaluators: their number in the whole run.
      environment: the replica's environment variables.

    Raises:
      UserError: there are none for this machine, or the environment makes no sense.
    """
    each = roles.number(environment, "SEED_RL_ACTORS_PER_MACHINE", 1) or 1
    machine = machine_index(environment)
    first = machine * each
    if first >= actors:
        raise UserError(
            f"Machine {machine} has nothing to do: the run's {actors} actors fit on the machines "
            f"before it, {each} on each. Rent fewer replicas."
        )
    machines = -(-actors // each)
    mine = range(first, min(first + each, actors))
    return [*mine, *range(actors + machine, actors + evaluators, machines)]


def _actors(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    evaluators = roles.evaluators_from(environment)
    options, _ = run.parse(arguments, evaluators)
    place = environment.get("SEED_RL_ADDRESS_OBJECT")
    waits = (
        [f"--{name}_timeout_s={run.MOVED_S}" for name in ("connect", "reconnect")] if place else []
    )

    def start(index: int) -> subprocess.Popen[bytes] | None:
        """Starts an actor or evaluator; None if the run is done."""
        evaluator = index - options.actors
        changed = (
            {"SEED_RL_ROLE": roles.ACTOR, "SEED_RL_INDEX": str(index)}
            if evaluator < 0
            else {"SEED_RL_ROLE": roles.EVALUATOR, "SEED_RL_INDEX": str(evaluator)}
        )
        if place:
            address = wait_for_address(GoogleApi(), place)
            if address is None:
                return None
            changed["SEED_RL_ADDRESS"] = address
        return subprocess.Popen(
            [sys.executable, "-m", "seed_rl.cluster", *waits, *arguments],
            env={**environment, **changed},
            stdin=subprocess.DEVNULL,
            preexec_fn=die_with_parent(os.getpid(), signal.SIGTERM),
        )

    return Machine(start).run(tasks(options.actors, evaluators, environment))


def wait_for_address(
    api: GoogleApi, place: str, sleep: Callable[[float], None] = time.sleep
) -> str | None:
    """The learner's address as soon as it has written it; None if it has finished training.

    A bucket that does not answer does not end the machine's other actors: only the engine gives up.

    Args:
      api: reads the object.
      place: the object, gs://BUCKET/NAME.
      sleep: waits for so many seconds.

    Raises:
      UserError: the object cannot be read.
    """
    waited_s = 0.0
    while True:
        try:
            content = api.read(place)
        except UnavailableError as error:
            say(f"{error} Trying again.")
            content = None
        if content == _DONE:
            return None
        if content:
            return content.decode().strip()
        if waited_s % _REPORT_S == 0:
            say(
                f"waiting for the learner to write its address to {place} (for {waited_s:.0f} s; "
                "is its job running, in the same bucket and network?)"
            )
        sleep(_PERIOD_S)
        waited_s += _PERIOD_S


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
