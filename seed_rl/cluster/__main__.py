"""One process of a run on several machines: finds out which one and execs it.

The environment says which; the command line is the same for all processes.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import pathlib
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence

from seed_rl.cluster import address_file, indices, learners, mirrored, roles, run, say
from seed_rl.cluster.roles import Role
from seed_rl.cluster.run import ClusterRun, stopped_code
from seed_rl.common.errors import INTERRUPTED, LostLearnerError, UserError
from seed_rl.common.run_files.progress import LEARNERS
from seed_rl.common.system import terminal
from seed_rl.common.system.file_lock import LearnerLock
from seed_rl.launch import proxy
from seed_rl.launch.process import LIBRARY_THREADS, QUIET

_PREDECESSOR_S = 300.0  # By then, engines and file systems take a silent machine for lost.
_PERIOD_S = 5.0

USAGE = """\
usage: python -m seed_rl.cluster GAME AGENT ACTORS [ENVS_PER_ACTOR] [--flag=value ...]
       python -m seed_rl.cluster PROGRAM.py [AGENT] ACTORS [ENVS_PER_ACTOR] [--flag=value ...]

Becomes one process of a run: learner, actor, evaluator, TensorBoard or proxy. Every process of the
run gets the same command line, that of ./run_local.sh; its environment selects the process. It then
execs the program, so that signals and exit codes are the program's (docs/reliability.md lists
them).

  SEED_RL_ROLE          learner, actor, evaluator, tensorboard or proxy
  SEED_RL_INDEX         index of this actor among the actors, of this evaluator among the
                        evaluators, or of this one of several learners, from 0
  SEED_RL_INDEX_DIR     instead: a directory in which each process claims the lowest free index,
                        with a lock that it holds as long as it runs
  SEED_RL_ADDRESS       HOST:PORT of the learner, as actors reach it. The learner listens at that
                        port of all addresses of its machine (only of loopback if HOST is that).
                        Several learners: HOST:PORT,HOST:PORT,... or learner-{}:8686, with {} for
                        the index. They exchange gradients at the ports 100 above these
  SEED_RL_ADDRESS_FILE  instead: a file to which the learner writes its HOST:PORT, with a free port,
                        and in which actors look it up each time they start (if the
                        learner has SEED_RL_ADDRESS, it writes that). Several learners each have a
                        file: FILE, FILE-1, ...
  SEED_RL_START         with SEED_RL_ADDRESS_FILE and several learners: a string shared by all of
                        them and different at each start, so that none uses an old address
  SEED_RL_BIND          host at which the learner listens instead, such as [::] or 10.0.0.5
  SEED_RL_PROXY         path of a Unix socket, for learner and proxy: the learner listens there, and
                        the proxy (HAProxy, which asks actors for certificates) where actors connect
  SEED_RL_SECRETS       directory with any of token (for all), cert.pem and key.pem (learner),
                        proxy.pem (proxy), ca.pem (proxy, actors), actor-cert.pem and actor-key.pem
                        (actors), as scripts/make_secrets.sh makes them
  SEED_RL_EVALUATORS    number of evaluators (default: 0), for all processes: each has
                        ENVS_PER_ACTOR environments that only evaluate
  SEED_RL_TENSORBOARD_HOST
                        host at which TensorBoard listens (default: localhost; it does not ask
                        for a password). Its port: --tensorboard_port (default: 6006)

Where these are unset, the engine's variables apply: JOB_COMPLETION_INDEX (Kubernetes) and
SLURM_ARRAY_TASK_ID are an index; SKYPILOT_NODE_RANK 0 is the learner, at port 8686 of the first of
SKYPILOT_NODE_IPS, and the others are actors; in CLUSTER_SPEC (Google's custom jobs), pool 0 is the
learner, pool 1 are the actors. Several learners are SkyPilot's first nodes; on Google, those after
the first learner are pool 2.

  --learners=N          N learners, each with ACTORS / N of the actors, train one network together;
                        needs --insecure, and a --logdir that all of them see (docs/deployment.md)

  --logdir=DIR          must be the same directory for all learners of a run, past and future. With
                        a URL, such as gs://bucket/run (packages: fsspec, gcsfs), the
                        learner works in a local directory, which is restored from there, and copied
                        there every SEED_RL_COPY_SECS seconds (default: 30) and at the end

Options that the command sets itself: --run_mode, --task, --num_envs, --env_batch_size,
--server_address. To list the others: python -m seed_rl.GAME.AGENT_main --help
"""


def become(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """The command line to become, and variables to set for it.

    Claims an index, or publishes or looks up the learner's address.

    Args:
      arguments: the command line.
      environment: the environment variables.

    Raises:
      UserError: something is missing or makes no sense; the message says what to do.
    """
    evaluators = roles.evaluators_from(environment)
    options, logdir = run.parse(arguments, evaluators)
    role = roles.role_from(environment, options.learners)
    if role.kind in (roles.LEARNER, roles.PROXY):
        run.check_index("learner", role.index, options.learners, "--learners on all command lines")
    shared_file = environment.get("SEED_RL_ADDRESS_FILE")
    secrets = environment.get("SEED_RL_SECRETS")
    address = roles.address_from(environment, options.learners)
    proxied = environment.get("SEED_RL_PROXY")
    if role.kind == roles.PROXY and secrets:
        proxy.check(pathlib.Path(secrets))  # Before its address draws actors to this machine.
    if role.kind == roles.LEARNER and logdir and "--only_check_args" not in arguments:
        own = LEARNERS.format(index=role.index) if role.index else ""
        _check_alone(pathlib.Path(logdir, own), roles.restarted(environment))
    # With a proxy, the address in the file is the proxy's.
    hidden = role.kind == roles.LEARNER and proxied and options.learners == 1
    if shared_file and role.kind != roles.TENSORBOARD and not hidden:
        address = _meet(role, options.learners, address, environment)
    described = ClusterRun(
        options=options,
        logdir=logdir,
        address=address,
        learner=role.index if role.kind in (roles.LEARNER, roles.PROXY) else 0,
        bind=environment.get("SEED_RL_BIND") or None,
        proxied=pathlib.Path(proxied).absolute() if proxied else None,
        moves=bool(shared_file),
        secrets=pathlib.Path(secrets).absolute() if secrets else None,
        evaluators=evaluators,
        tensorboard_host=environment.get("SEED_RL_TENSORBOARD_HOST") or "localhost",
    )
    if role.kind == roles.PROXY:
        settings = described.proxy(pathlib.Path(tempfile.mkdtemp(prefix="seed_rl_proxy_")))
        return settings.command(), settings.environment()
    return _command(described, role), {}


def _check_alone(logdir: pathlib.Path, restarted: bool) -> None:
    """Refuses a second learner, before its address draws the actors away from the first.

    Args:
      logdir: of the learner.
      restarted: whether the first may be its predecessor, which is still saving, or on a lost
        machine: it is then given some time.

    Raises:
      UserError: there is another learner, or the directory cannot be written.
    """
    waited_s = 0.0
    while os.path.isdir(logdir):  # False if it cannot be read, which the program reports.
        try:
            LearnerLock(logdir).release()
            return
        except UserError as error:
            if not restarted or waited_s >= _PREDECESSOR_S:
                raise
            if not waited_s:
                say(
                    f"{error} Waiting up to {_PREDECESSOR_S:.0f} s, since it may be the "
                    "predecessor of this one"
                )
        time.sleep(_PERIOD_S)
        waited_s += _PERIOD_S


def _meet(role: Role, count: int, addresses: str | None, environment: Mapping[str, str]) -> str:
    """Writes the address of this learner to its file, and reads those of all; returns them.

    Raises:
      LostLearnerError: another learner has not written its address.
    """
    path = pathlib.Path(environment["SEED_RL_ADDRESS_FILE"])
    start = environment.get("SEED_RL_START", "") if count > 1 else ""
    learner = role.kind == roles.LEARNER
    proxied = environment.get("SEED_RL_PROXY") or role.kind == roles.PROXY
    if count > 1 and (proxied or (learner and not start)):
        raise UserError(
            f"{count} learners with SEED_RL_ADDRESS_FILE need SEED_RL_START, a string that differs "
            "at each start, and cannot use a proxy. Alternatively, list all of their addresses "
            "in SEED_RL_ADDRESS."
        )
    if learner or role.kind == roles.PROXY:
        own = learners.nth(addresses, role.index) if addresses else address_file.own_address()
        file = address_file.of_learner(path, role.index)
        address_file.publish(file, run.check_address(own), start)
    files = [address_file.of_learner(path, i) for i in range(count)]
    try:  # Actors, which try again, do not know the name of the start.
        found = [address_file.wait_for(file, start if learner else "") for file in files]
    except address_file.NoLearnerError as error:
        if not learner:
            raise
        raise LostLearnerError(str(error)) from error
    return ",".join(found)


def _command(described: ClusterRun, role: Role) -> list[str]:
    if role.kind == roles.LEARNER:
        return described.learner_command()
    if role.kind == roles.TENSORBOARD:
        return described.tensorboard_command()
    evaluates = role.kind == roles.EVALUATOR
    index = role.index
    if role.index_dir is not None:
        count = described.evaluators if evaluates else described.options.actors
        index = indices.claim(role.index_dir, role.kind, count)
    return described.evaluator_command(index) if evaluates else described.actor_command(index)


def program_environment(command: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of the program."""
    defaults = {**QUIET, **LIBRARY_THREADS} if "--run_mode=actor" in command else QUIET
    changed = {**defaults, **environment}
    changed.pop("TF_CONFIG", None)  # TensorFlow would take it for the description of a cluster.
    return changed


def main(
    arguments: Sequence[str], after_copy: Callable[[pathlib.Path], None] = lambda logdir: None
) -> int:
    """Becomes the process; returns only after errors and after a learner with a URL as logdir.

    Args:
      arguments: the command line.
      after_copy: called with the local logdir each time it has been copied from or to a URL.

    Returns:
      The exit code.
    """
    if "--help" in arguments or "-h" in arguments:
        terminal.end_without_reader()
        print(USAGE, end="")
        return 0
    code = stopped_code(arguments)
    # The default action does not apply to the first process of a container.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(code))
    try:
        _check_packages()
        if url := _learners_url(arguments, os.environ):
            return _mirror(arguments, url, after_copy, code)
        command, variables = become(arguments, os.environ)
    except UserError as error:
        print(f"error: {error} (--help lists the settings)", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    say(shlex.join(command[1:]))
    environment = program_environment(command, {**os.environ, **variables})
    os.execve(command[0], command, environment)


def _check_packages() -> None:
    """Refuses a Python without SEED RL's packages, instead of printing a traceback.

    Raises:
      UserError: they are missing; the message says how to install them.
    """
    if importlib.util.find_spec("absl") is None:
        raise UserError(
            f"{sys.executable} lacks the packages of SEED RL: run scripts/setup.sh GAME in its "
            "checkout, then use .venv/bin/python there."
        )


def _learners_url(arguments: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """The logdir, if this process is a learner and it is a URL."""
    options, logdir = run.parse(arguments, roles.evaluators_from(environment))
    if logdir is None or "://" not in logdir:
        return None
    return logdir if roles.role_from(environment, options.learners).kind == roles.LEARNER else None


def _mirror(
    arguments: Sequence[str],
    url: str,
    after_copy: Callable[[pathlib.Path], None],
    stopped_code: int,
) -> int:
    logging.basicConfig(level=logging.INFO, format="seed_rl.cluster: %(message)s")

    def command(logdir: pathlib.Path) -> list[str]:
        found, _ = become([*arguments, f"--logdir={logdir}"], os.environ)  # The last one counts.
        say(shlex.join(found[1:]))
        return found

    period = roles.number(os.environ, "SEED_RL_COPY_SECS", 1) or 30
    environment = program_environment([], os.environ)
    return mirrored.run(command, url, environment, after_copy, float(period), stopped_code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
