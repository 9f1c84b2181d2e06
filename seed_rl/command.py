"""The command `seed-rl`, which pip installs: one name for the programs of this package.

`seed-rl train ppo HalfCheetah-v5` is `./run_local.sh mujoco ppo ... --env_name=HalfCheetah-v5`;
every other command passes its arguments on to the program in `PROGRAMS`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from seed_rl.atari import games as atari_games
from seed_rl.common.errors import UserError
from seed_rl.common.run_files import checkpoint_list, run_record
from seed_rl.common.system import isolated, processor, terminal
from seed_rl.launch import arguments as run_arguments
from seed_rl.launch import games, local


class Program(NamedTuple):
    """What a command runs.

    Attributes:
      module: as for `python -m`.
      summary: one line of help.
    """

    module: str
    summary: str


_TRAINER = "seed_rl.launch.local"
PROGRAMS = {
    "train": Program(_TRAINER, "AGENT ENVIRONMENT [--actors=N] [--envs=N]   train an agent"),
    "resume": Program(_TRAINER, "RUN   continue a run with its saved options"),
    "stop": Program("seed_rl.launch.stop", "[RUN]   save and stop a run"),
    "play": Program("seed_rl.play", "RUN [--video=F.mp4]   watch or film an agent"),
    "evaluate": Program("seed_rl.evaluate", "RUN [--episodes=N]   measure an agent"),
    "serve": Program(
        "seed_rl.serve", "RUN [--server_address=A]   serve an agent's actions to actors"
    ),
    "check": Program("seed_rl.check_env", "ENVIRONMENT   check your environment"),
    "conformance": Program(
        "seed_rl.conformance", "[-- COMMAND ...]   check a client in another language"
    ),
    "study": Program("seed_rl.study", "SPEC.json   train many configurations, tasks and seeds"),
    "plot": Program("seed_rl.common.monitoring.plots", "RUN...   draw learning curves"),
}
_ENVS = 8
_MOST_ACTORS = 8
_OWN_FLAGS = f"""\
  --actors=N   actor processes (default: one per core, at most {_MOST_ACTORS})
  --envs=N     environments per actor (default: {_ENVS})
"""
# The flag that names an environment of a family; the others have --env_name.
_FLAGS = {"atari": "game", "dmlab": "game", "football": "game"}
_MUJOCO = re.compile(
    "(Ant|HalfCheetah|Hopper|Humanoid|HumanoidStandup|Inverted(Double)?Pendulum|Pusher|Reacher|"
    "Swimmer|Walker2d)(-v[0-9]+)?|(Fetch.*|Hand.*|Adroit.*)-v[0-9]+"
)
_FOOTBALL = re.compile("academy_.*|[0-9]+_vs_[0-9]+_.*")
_DMLAB = re.compile("(dmlab30|rooms|language|lasertag|natlab|skymaze|psychlab|explore)(_.*)?")


def usage(command: str = "") -> str:
    """The text of `seed-rl --help`, or of its command `train` or `resume`."""
    if command:
        own, of_new = f"{_OWN_FLAGS}\n", run_arguments.NEW_RUN_FLAGS
        if command == "resume":
            own = of_new = ""
        first = f"usage: {_usage_line(command)}\n\n{own}Run flags:\n{of_new}"
        others = f"All other flags: seed-rl {command} {_line(command)} --help\n"
        return "\n".join((first + run_arguments.RUN_FLAGS, others, run_arguments.ENDING))
    width = max(map(len, PROGRAMS))
    commands = "\n".join(f"  {name:{width}}  {what.summary}" for name, what in PROGRAMS.items())
    agents = ", ".join(sorted({agent for names in games.available().values() for agent in names}))
    return f"""\
usage: seed-rl COMMAND ...

{commands}

  AGENT        {agents}
  ENVIRONMENT  an Atari game (Pong), a Gymnasium id (CartPole-v1, HalfCheetah-v5), a football
               scenario (academy_empty_goal_close), a DeepMind Lab level, your own class
               (module:Class) or program (PROGRAM.py), or external (docs/clients.md); FAMILY:NAME
               selects the family:
               {", ".join(games.available())}
{_OWN_FLAGS}  --seeds=N    train with the seeds 1 to N; --at_once=N of them at a time (default: 1)
  RUN          the directory of a run, such as runs/gym-vtrace-CartPole-v1

seed-rl COMMAND --help lists the flags of a command, and seed-rl train AGENT ENVIRONMENT --help
also those of the agent and the environment. Ctrl-C saves and stops a run.
"""


def _line(command: str) -> str:
    """The arguments of a command, for its usage line."""
    return PROGRAMS[command].summary.partition("   ")[0].partition(" [")[0]


def _usage_line(command: str) -> str:
    own = " [--actors=N] [--envs=N]" if command == "train" else ""
    return f"seed-rl {command} {_line(command)}{own} [--flag=value ...]"


def module_arguments(arguments: Sequence[str]) -> list[str]:
    """What `python -m` runs for a command line.

    Raises:
      UserError: there is no such command, or its arguments are wrong.
    """
    if not arguments:
        raise UserError("Which command? " + ", ".join(PROGRAMS) + ". See seed-rl --help.")
    command, *rest = arguments
    if command not in PROGRAMS:
        raise UserError(f"There is no command {command}; {games.choices(command, PROGRAMS)}")
    if command == "train":
        rest = _training(rest)
    elif command == "resume":
        rest = _resuming(rest)
    elif command == "check" and not rest:
        raise UserError("Expected: seed-rl check ENVIRONMENT [--flag=value ...].")
    elif command == "check" and not rest[0].startswith("-"):
        rest = [f"--env={rest[0]}", *rest[1:]]
    return [PROGRAMS[command].module, *rest]


def place(environment: str) -> tuple[str, list[str]]:
    """The family of an environment, or its program, and the flag that names it there."""
    if games.is_file(environment):
        return environment, []
    if environment == run_arguments.EXTERNAL:
        return environment, []
    family, found, name = environment.partition(":")
    if not found or family not in games.available():
        family, name = _family(environment), environment
    return family, [f"--{_FLAGS.get(family, 'env_name')}={name}"]


def _family(name: str) -> str:
    with contextlib.suppress(UserError):
        atari_games.rom_name(name, atari_games.NAMES)
        return "atari"
    for family, names in (("mujoco", _MUJOCO), ("football", _FOOTBALL), ("dmlab", _DMLAB)):
        if names.fullmatch(name):
            return family
    # Gymnasium's ids usually have a version.
    if name.isalpha() and (near := atari_games.similar(name, atari_games.NAMES, 0.8)):
        raise UserError(
            f"There is no Atari game {name}. Did you mean {', '.join(near)}? (Write gym:{name} if "
            "that is an id of Gymnasium.)"
        )
    return "gym"


def _training(arguments: Sequence[str]) -> list[str]:
    positional = [argument for argument in arguments if not argument.startswith("-")]
    flags = [argument for argument in arguments if argument.startswith("-")]
    # ./run_local.sh expects the family first.
    if len(positional) != 2 or positional[0] in games.available():
        raise UserError(
            "Expected: seed-rl train AGENT ENVIRONMENT, such as `seed-rl train ppo Pong`, but got "
            f"'{' '.join(positional)}' (write flags as --name=value)."
        )
    agent, environment = positional
    agents = {name for names in games.available().values() for name in names}
    if environment in agents and agent not in agents:
        raise UserError(f"Did you mean: seed-rl train {environment} {agent}?")
    family, named = place(environment)
    if not games.is_file(family):
        games.main_module(family, agent)
    for flag in flags:
        if named and flag.lstrip("-").partition("=")[0] in ("env", named[0][2:].partition("=")[0]):
            raise UserError(f"{environment} and {flag} both name the environment. Leave one out.")
    actors, flags = _taken("actors", str(min(processor.cores(), _MOST_ACTORS)), flags)
    envs, flags = _taken("envs", str(_ENVS), flags)
    files = [index for index, flag in enumerate(flags, 1) if flag.startswith("--flagfile=")]
    first = max(files, default=0)  # A file may name another environment.
    return [family, agent, actors, envs, *flags[:first], *named, *flags[first:]]


def _taken(name: str, default: str, flags: Sequence[str]) -> tuple[str, list[str]]:
    """The last value of a flag, and the other flags."""
    prefix = f"--{name}="
    given = [flag.removeprefix(prefix) for flag in flags if flag.startswith(prefix)]
    return (given or [default])[-1], [flag for flag in flags if not flag.startswith(prefix)]


def _resuming(arguments: Sequence[str]) -> list[str]:
    if not arguments or arguments[0].startswith("-"):
        raise UserError("Expected: seed-rl resume RUN [--flag=value ...].")
    run, *flags = arguments
    for flag in flags:
        name = flag.lstrip("-").partition("=")[0]
        if name in run_arguments.OF_NEW_RUNS:
            raise UserError(f"--{name} is not for `seed-rl resume`, which continues one run.")
    record = run_record.read(Path(run))
    program = record.get(run_record.PROGRAM)
    num_envs, envs = record.get("num_envs"), record.get("env_batch_size")
    if program is None:
        raise UserError(
            f"{run} was not started by a command, but from Python: do that again, with the same "
            "logdir."
        )
    own = re.fullmatch(r"seed_rl\.(\w+)\.(\w+)_main", str(program))
    several = record.get("learner_addresses")
    if own is None or not num_envs or not envs or several:
        why = "several learners" if several else f"another program ({program})"
        raise UserError(
            f"{run} was trained by {why}, which `seed-rl resume` cannot start: run the same "
            f"command again, with --logdir={run}."
        )
    if not checkpoint_list.list_checkpoints(Path(run) / checkpoint_list.DIRECTORY):
        raise UserError(
            f"{run} has no checkpoint to continue. Repeat the command that started it, with "
            f"--logdir={run}. (To continue from a checkpoint, name its run's directory.)"
        )
    actors = int(num_envs) // int(envs)
    remote, _ = _taken("remote_actors", "0", flags)
    if remote.isdecimal() and int(remote) > actors:
        raise UserError(f"--remote_actors={remote}: the run has only {actors} actors.")
    actors -= int(remote) if remote.isdecimal() else 0  # The launcher says what is wrong with it.
    return [*own.groups(), str(actors), str(envs), f"--logdir={run}", *flags]


def _help(command: str, arguments: Sequence[str]) -> str:
    """`usage`, and the options of the agent and the environments, if `arguments` name them.

    Raises:
      UserError: they are wrong.
    """
    text = usage(command)
    if not arguments:
        return text
    options = run_arguments.parse(module_arguments([command, *arguments])[1:])
    return text + run_arguments.program_options(options)


def main() -> int:
    """Runs the command; returns its exit code, or becomes the program."""
    arguments = sys.argv[1:]
    command, runs = arguments[0] if arguments else "", arguments[:1] in (["train"], ["resume"])
    helps = {"help", *run_arguments.HELPS}
    try:
        if command in helps or (runs and helps & set(arguments)):
            terminal.end_without_reader()
            rest = [argument for argument in arguments[1:] if argument not in helps]
            print(_help(command, rest) if runs else usage(), end="")
            return 0
        module, *rest = module_arguments(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return UserError.exit_code
    if runs:
        named = [argument for argument in arguments[1:] if not argument.startswith("-")]
        words = {"ENVS_PER_ACTOR": "--envs", "ACTORS": "--actors"} if command == "train" else {}
        typed = shlex.join(["seed-rl", command, *named])
        return local.main(rest, typed, _usage_line(command), words)
    sys.stdout.flush()
    # Only an environment to be checked may be in the working directory.
    start = [sys.executable, "-m", module] if command == "check" else isolated.command(module)
    os.execv(sys.executable, [*start, *rest])


if __name__ == "__main__":
    sys.exit(main())
