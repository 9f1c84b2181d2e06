"""The arguments of `./run_local.sh`.

Standard library only: the script runs this module with the system's Python before installing
anything, so that a typo does not cost minutes. Run as a program, it checks its arguments and prints
the extra to install.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import subprocess
import sys
from collections.abc import Sequence

from seed_rl.common.errors import UserError
from seed_rl.common.system import terminal
from seed_rl.launch import games

USAGE = """\
usage: ./run_local.sh GAME AGENT ACTORS [ENVS_PER_ACTOR] [--flag=value ...]
       ./run_local.sh PROGRAM.py [AGENT] ACTORS [ENVS_PER_ACTOR] [--flag=value ...]
       ./run_local.sh --docker ...     the same in a container

  GAME            family of environments, one of: {games}
  AGENT           {agents}
  PROGRAM.py      a program of your own (docs/custom_environments.md); AGENT: if it has several
  ACTORS          number of actor processes, or of clients if GAME is external (docs/clients.md)
  ENVS_PER_ACTOR  environments that each actor steps in a batch (default: 1)

Run flags:
{run_flags}
All other flags are passed to the learner and the actors. To list them:
  ./run_local.sh GAME AGENT --help

{ending}"""

NEW_RUN_FLAGS = """\
  --learners=N             N learners, each with ACTORS / N actors, train one network together;
                           needs --insecure (docs/deployment.md)
  --seeds=N                train with the seeds 1 to N, in N runs below DIR, and draw the curves
  --at_once=N              with --seeds: runs at a time (default: 1)
  --logdir=DIR             checkpoints, TensorBoard files and logs; a run already in DIR resumes
                           (default: runs/GAME-AGENT-ENVIRONMENT, e.g. runs/atari-vtrace-Pong)
  --restart=fresh          start over; the contents of DIR are moved aside, never deleted
"""
RUN_FLAGS = """\
  --server_address=A       learner's address, host:port or unix:/path (default: a private Unix
                           socket)
  --expose[=[HOST:]PORT]   accept actors from other machines: HAProxy listens at this address
                           (default: port 8686) and admits clients that present a certificate
                           (docs/security.md)
  --remote_actors=N        additional actors, which you start yourself: the first with --task=ACTORS
                           (the number of local actors); they connect to --expose or
                           --server_address
  --secrets=DIR            with --expose: directory from scripts/make_secrets.sh (default: secrets)
  --tensorboard=false      do not start TensorBoard
  --tensorboard_port=PORT  TensorBoard's port (default: any free port)
"""

ENDING = """\
Ctrl-C saves a checkpoint and stops everything; the same command resumes the run. A second Ctrl-C
exits immediately without saving. Exit code 0: finished or stopped (see "phase" in
DIR/progress.json); 2: a user error, explained in the message; 5: the last checkpoint could not be
saved; any other: failure.
"""

SET_BY_SUPERVISOR = {
    "run_mode": "both the learner and the actors are started",
    "task": "actors are numbered automatically",
    "num_envs": "it is ACTORS x ENVS_PER_ACTOR",
    "env_batch_size": "it is ENVS_PER_ACTOR",
}
_OWN_WITH_VALUE = (
    *("logdir", "restart", "server_address", "tensorboard_port"),
    *("remote_actors", "secrets", "seeds", "at_once", "learners"),
)
_OF_SEVERAL = ("seeds", "at_once", "learners")  # Runs, or learners.
OF_NEW_RUNS = (*_OF_SEVERAL, "logdir", "restart")
OF_ONE_RUN = {
    "server_address": "each run has its own",
    "expose": "its runs only have actors of their own",
    "tensorboard_port": "start a TensorBoard over its directory",
    "restart": "name a new directory with --logdir=DIR",
    "learners": "each run has one",
}
HELPS = frozenset({"--help", "-h"})
DEFAULT_PORT = 8686
"""The learner's port if only its host is known."""
_DEFAULT_ADDRESS = f"localhost:{DEFAULT_PORT}"
EXTERNAL = "external"
"""The game whose actors are programs in any language, started by others."""
_TRUE = ("true", "1", "yes")
_FALSE = ("false", "0", "no")


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """What one call of `./run_local.sh` asks for.

    Attributes:
      game: its name, or the path of the user's program.
      agent: its name; "" if the user's program has only one.
      module: the main program, as a module or a path.
      actors: number of actor processes.
      envs_per_actor: environments per actor.
      logdir: the run's directory; None: the program's default.
      server_address: the learner's address; None: a private Unix socket.
      expose: where a proxy listens for actors on other machines, as [HOST]:PORT; None: nowhere.
      remote_actors: number of additional actors, started by others.
      secrets: directory of the proxy's certificates.
      fresh: whether to move an earlier run in `logdir` aside.
      tensorboard: whether to start TensorBoard.
      tensorboard_port: None: any free port.
      flags: passed to the learner and the actors.
      actor_flags: passed to the actors, before `flags`.
      seeds: how many runs to train, with the seeds 1, 2, ...; 0: one run, by the seed in `flags`.
      at_once: how many of them at a time.
      typed: the command that starts it, which messages name before --help; "": the script.
      learners: number of learners, which share the actors.
      learner_addresses: of several learners, where they exchange gradients.
      frames: length of a run, as the program states it; None: not asked yet, or not stated.
    """

    game: str
    agent: str
    module: str
    actors: int
    envs_per_actor: int
    logdir: pathlib.Path | None = None
    server_address: str | None = None
    expose: str | None = None
    remote_actors: int = 0
    secrets: pathlib.Path = pathlib.Path("secrets")
    fresh: bool = False
    tensorboard: bool = True
    tensorboard_port: int | None = None
    flags: tuple[str, ...] = ()
    actor_flags: tuple[str, ...] = ()
    seeds: int = 0
    at_once: int = 1
    typed: str = ""
    learners: int = 1
    learner_addresses: str = ""
    frames: int | None = None

    @property
    def num_envs(self) -> int:
        """Environments of a learner."""
        return (self.actors // self.learners + self.remote_actors) * self.envs_per_actor

    @property
    def program(self) -> tuple[str, ...]:
        """The arguments with which Python runs the main program."""
        return (self.module,) if self.module.endswith(".py") else ("-m", self.module)


def usage() -> str:
    available = games.available()
    agents = "; ".join(f"for {game}: {', '.join(names)}" for game, names in available.items())
    texts = {"run_flags": NEW_RUN_FLAGS + RUN_FLAGS, "ending": ENDING}
    return USAGE.format(games=", ".join(available), agents=agents, **texts)


def program_options(options: RunOptions) -> str:
    """The options of an agent and its environments, as a continuation of a usage text.

    Raises:
      UserError: their program does not start.
    """
    line = [sys.executable, *options.program, "--help"]
    if not games.is_file(options.game):
        missing = f" Install the packages first: scripts/setup.sh {games.extra(options.game)}"
    else:
        missing, line = "", [*line, *(f for f in options.flags if f.startswith("--agent="))]
    listed = subprocess.run(line, capture_output=True, text=True, check=False)
    if listed.returncode:
        errors = listed.stderr.strip().splitlines() or ["no options"]
        reason = errors[-1].removeprefix("error: ")
        raise UserError(f"{reason}.{missing}" if "No module named" in reason else reason)
    # Without the program's own usage line.
    flags = listed.stdout.partition("\n\nusage: ")[2].partition("\n\n")[2] or listed.stdout
    return f"\nOptions of the agent and its environments:\n\n{flags}"


def usage_line() -> str:
    return USAGE.splitlines()[0].removeprefix("usage: ")


def parse(arguments: Sequence[str]) -> RunOptions:
    """Parses the command line.

    Raises:
      UserError: it is invalid; the message says what to change.
    """
    positional, flags = _divide(arguments)
    own_program = bool(positional) and games.is_file(positional[0])
    if own_program and (len(positional) == 1 or positional[1].isdecimal()):
        positional.insert(1, "")
    if not 3 <= len(positional) <= 4:
        given = len(arguments) - len(flags)
        raise UserError(
            f"Expected {'PROGRAM.py [AGENT]' if own_program else 'GAME AGENT'} ACTORS "
            f"[ENVS_PER_ACTOR], but got {given} argument{'s' * (given != 1)} (write flags "
            "as --name=value)."
        )
    game, agent = positional[:2]
    module = games.file_program(game) if own_program else games.main_module(game, agent)
    own, passed_on = _split_flags(flags)
    if own_program and agent:
        passed_on = (f"--agent={agent}", *passed_on)
    port = own.get("tensorboard_port")
    _check_exposed(own)
    _check_seeds(game, own, passed_on)
    remote = _count(own["remote_actors"], "--remote_actors") if "remote_actors" in own else 0
    actors = _count(positional[2], "ACTORS", least=0 if remote else 1)
    if game == EXTERNAL and not remote:
        actors, remote = 0, actors
        if "expose" not in own:
            own.setdefault("server_address", _DEFAULT_ADDRESS)
    learners = _count(own.get("learners", "1"), "--learners")
    _check_learners(game, own, learners, actors)
    return RunOptions(
        game=game,
        agent=agent,
        module=module,
        actors=actors,
        learners=learners,
        envs_per_actor=_count(positional[3], "ENVS_PER_ACTOR") if positional[3:] else 1,
        logdir=_logdir(own["logdir"]) if "logdir" in own else None,
        server_address=own.get("server_address"),
        expose=_place(own["expose"]) if "expose" in own else None,
        remote_actors=remote,
        secrets=pathlib.Path(own.get("secrets", "secrets")).expanduser(),
        fresh=_choice("restart", own.get("restart", "resume"), ("resume", "fresh")) == "fresh",
        tensorboard=_choice("tensorboard", own.get("tensorboard", "true"), _TRUE + _FALSE) in _TRUE,
        tensorboard_port=_port(port) if port else None,
        flags=passed_on,
        seeds=_count(own["seeds"], "--seeds") if "seeds" in own else 0,
        at_once=_count(own.get("at_once", "1"), "--at_once"),
    )


def _divide(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits positional arguments from flags, which must be written --name=value."""
    positional, flags = [], []
    previous = ""
    for argument in arguments:
        if argument.startswith("--"):
            flags.append(argument)
        elif re.match("-[A-Za-z]", argument):
            raise UserError(f"{argument}: flags start with two dashes; write -{argument}.")
        elif previous.startswith("--") and "=" not in previous:
            raise UserError(
                f"{previous} {argument}: write {previous}={argument}. (Put GAME AGENT ACTORS "
                "ENVS_PER_ACTOR before the flags.)"
            )
        else:
            positional.append(argument)
        previous = argument
    return positional, flags


def _split_flags(flags: list[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    own: dict[str, str] = {}
    passed_on = []
    for flag in flags:
        name, equals, value = flag.lstrip("-").partition("=")
        name = "logdir" if name == "job-dir" else name
        if name in SET_BY_SUPERVISOR:
            raise UserError(f"--{name} cannot be set here: {SET_BY_SUPERVISOR[name]}.")
        if name in _OWN_WITH_VALUE and not value:
            raise UserError(f"--{name} needs a value: --{name}=...")
        if name == "expose":
            own[name] = value if equals else str(DEFAULT_PORT)
        elif name in _OWN_WITH_VALUE or name == "tensorboard":
            own[name] = value if equals else "true"
        elif name == "notensorboard":
            own["tensorboard"] = "false"
        else:
            passed_on.append(flag)
    return own, tuple(passed_on)


def _count(text: str, name: str, least: int = 1) -> int:
    if not text.isdecimal() or int(text) < least:
        kind = "positive" if least else "non-negative"
        raise UserError(f"{name} must be a {kind} integer, not '{text}'.")
    return int(text)


def _port(text: str, name: str = "--tensorboard_port") -> int:
    port = _count(text, name)
    if port > 65535:
        raise UserError(f"{name}={port}: ports range from 1 to 65535.")
    return port


def _place(text: str) -> str:
    """Where to listen, as [HOST]:PORT."""
    host, _, port = text.rpartition(":")
    return f"{host}:{_port(port, '--expose')}"


def _check_exposed(own: dict[str, str]) -> None:
    if "expose" not in own:
        if "secrets" in own:
            raise UserError(
                "--secrets is only for runs with actors on other machines: add --expose."
            )
        if "remote_actors" in own and "server_address" not in own:
            raise UserError(
                "--remote_actors need an address to connect to: --expose for other machines, or "
                f"--server_address={_DEFAULT_ADDRESS}."
            )
    elif not own.get("server_address", "unix:").startswith("unix:"):
        raise UserError(
            f"--server_address={own['server_address']} cannot be combined with --expose: the proxy "
            "listens there, and the learner at a Unix socket."
        )


def _check_seeds(game: str, own: dict[str, str], passed_on: Sequence[str]) -> None:
    if "seeds" not in own:
        if "at_once" in own:
            raise UserError("--at_once is only for several runs: add --seeds=N.")
        return
    if game == EXTERNAL:
        raise UserError(
            f"{EXTERNAL} cannot be combined with --seeds: each run needs its own actors."
        )
    for name in OF_ONE_RUN.keys() & own.keys():
        raise UserError(f"--{name} cannot be combined with --seeds: {OF_ONE_RUN[name]}.")
    if any(flag.lstrip("-").startswith("seed=") for flag in passed_on):
        raise UserError(f"--seeds={own['seeds']} sets --seed itself, from 1 on: leave --seed out.")


def _check_learners(game: str, own: dict[str, str], learners: int, actors: int) -> None:
    if learners == 1:
        return
    if game == EXTERNAL:
        raise UserError(
            f"{EXTERNAL} cannot be combined with --learners={learners}: its actors connect to one."
        )
    for name in ("expose", "server_address"):
        if name in own:
            raise UserError(
                f"--{name} cannot be combined with --learners={learners}: each has a private "
                "socket. Learners of other machines are started one by one (docs/deployment.md)."
            )
    if actors % learners:
        raise UserError(
            f"ACTORS={actors} cannot be divided among {learners} learners; choose a multiple."
        )


def _choice(name: str, value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise UserError(f"--{name} must be one of {', '.join(choices)}, not '{value}'.")
    return value


def _logdir(text: str) -> pathlib.Path:
    if "://" in text:
        raise UserError(f"--logdir={text}: a local run needs a local directory.")
    return pathlib.Path(text).expanduser().absolute()


def _help(arguments: Sequence[str]) -> str:
    positional, flags = _divide(arguments)
    if not positional or (len(positional) == 1 and not games.is_file(positional[0])):
        return usage()
    if not positional[-1].isdecimal():
        positional.append("1")  # Any number will do: only the program's options are asked for.
    of_program = [flag for flag in flags if flag[2:].partition("=")[0] not in _OF_SEVERAL]
    return usage() + program_options(parse([*positional, *of_program]))


def main(arguments: Sequence[str]) -> int:
    try:
        if HELPS & set(arguments):
            terminal.end_without_reader()
            print(_help([argument for argument in arguments if argument not in HELPS]), end="")
            return 0
        options = parse(arguments)
        games.check_environment(options.game, options.flags)
        extras = games.extra(options.game), "study,plot" if options.seeds else ""
        print(",".join(filter(None, extras)))
    except UserError as error:
        print(f"error: {error}\nusage: {usage_line()}   (see --help)", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
