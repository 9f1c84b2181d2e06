"""Trains an agent on this machine; `./run_local.sh` runs this program.

python -m seed_rl.launch.local GAME AGENT ACTORS [ENVS_PER_ACTOR] [--flag=value ...]
python -m seed_rl.launch.local PROGRAM.py [AGENT] ACTORS [ENVS_PER_ACTOR] [--flag=value ...]
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from seed_rl.common.errors import INTERRUPTED, UserError
from seed_rl.common.run_files import checkpoint_list, progress
from seed_rl.common.system import memory
from seed_rl.launch import arguments as run_arguments
from seed_rl.launch import games, panel, proxy
from seed_rl.launch.arguments import RunOptions
from seed_rl.launch.ports import free_port, is_free
from seed_rl.launch.run_lock import running_pid
from seed_rl.launch.supervisor import TENSORBOARD, Supervisor, SupervisorConfig

_STUDY = "seed_rl.study"  # Its runs are processes of this program, so it is started, not imported.
_ANSWER_S = 120
"""Longest time that a program may take to check its flags, its imports included."""

_ACTOR_BYTES = 32_000_000
"""Private memory of an actor with a tiny environment. (67 MB are resident, including libraries.)"""


def check_memory(options: RunOptions) -> None:
    """Refuses more actors than fit in memory, before they freeze the machine.

    Raises:
      UserError: the message names how many fit.
    """
    available = memory.available_bytes()
    needed = options.actors * _ACTOR_BYTES
    if needed > available:
        raise UserError(
            f"{options.actors:,} actors do not fit in memory: each needs at least "
            f"{_ACTOR_BYTES / 1e6:.0f} MB of its own, together {needed / 1e9:,.1f} GB, and "
            f"{available / 1e9:,.1f} GB are available. Use at most {available // _ACTOR_BYTES:,}, "
            "ideally a few per core, and raise ENVS_PER_ACTOR for more environments."
        )


def check_port(options: RunOptions) -> None:
    """Refuses a port for TensorBoard at which another program listens.

    Raises:
      UserError: another program does, or this user may not listen there.
    """
    port = options.tensorboard_port
    if not options.tensorboard or port is None:
        return
    assert options.logdir is not None
    if running_pid(options.logdir) is not None:  # The run itself may use the port.
        return
    try:
        problem = "" if is_free(port) else "another program listens there"
    except OSError as error:
        problem = str(error.strerror)
    if problem:
        raise UserError(
            f"--tensorboard_port={port}: {problem}. Choose another, or leave it out for a free one."
        )


def create_supervisor(options: RunOptions) -> Supervisor:
    """Creates the supervisor of a run; `options.logdir` must be set."""
    assert options.logdir is not None
    task = f"{options.agent} on {options.game}" if options.agent else options.game
    several = f"{options.learners} learners, " if options.learners > 1 else ""
    num_envs = options.learners * options.num_envs
    actors = options.actors + options.remote_actors
    counts = f"{actors} actor{'s' * (actors != 1)}, {num_envs} environment{'s' * (num_envs != 1)}"
    title = f"{task}: {several}{counts}"
    facts = {"logdir": str(options.logdir)}
    if options.expose:
        proxy.check(options.secrets)
    if options.expose or options.remote_actors:
        tasks = f"--task={options.actors} to {actors - 1}" if options.remote_actors else "no actors"
        place = options.expose or options.server_address
        facts["you start"] = f"{tasks}, --env_batch_size={options.envs_per_actor}, for {place}"
    tensorboard = None
    if options.tensorboard:
        port = options.tensorboard_port or free_port()
        facts[TENSORBOARD] = f"http://localhost:{port}"
        tensorboard = [sys.executable, "-m", "seed_rl.launch.tensorboard"]
        tensorboard += [f"--logdir={options.logdir}", "--host=localhost", f"--port={port}"]

    each = options.actors // options.learners

    def address(scratch: pathlib.Path, learner: int = 0) -> str:
        name = f"server-{learner}" if learner else "server"
        return options.server_address or f"unix:{scratch}/{name}.sock"

    def exposed(scratch: pathlib.Path) -> proxy.Proxy:
        assert options.expose is not None
        learner = pathlib.Path(address(scratch).removeprefix("unix:")).absolute()
        return proxy.Proxy(options.expose, learner, options.secrets, scratch)

    def command(run_mode: str, learner: int, scratch: pathlib.Path) -> list[str]:
        return [
            *(sys.executable, *options.program, f"--server_address={address(scratch, learner)}"),
            *(options.actor_flags if run_mode == "actor" else ()),
            *options.flags,
            # Later flags win: a flag file must not change these.
            f"--run_mode={run_mode}",
            f"--logdir={options.logdir}",
            f"--num_envs={options.num_envs}",
            f"--env_batch_size={options.envs_per_actor}",
            *(_learner_flags(options, learner)),
        ]

    return Supervisor(
        SupervisorConfig(
            options.logdir,
            options.actors,
            options.remote_actors,
            options.envs_per_actor,
            options.learners,
            fresh=options.fresh,
        ),
        learner_command=lambda learner, scratch: command("learner", learner, scratch),
        actor_command=lambda task, scratch: [
            *command("actor", task // each, scratch),
            f"--task={task % each}",
        ],
        tensorboard_command=tensorboard,
        proxy=exposed if options.expose else None,
        panel=panel.create(title, facts),
    )


def _learner_flags(options: RunOptions, learner: int) -> list[str]:
    """The flags that tell a process which of several learners it is, or belongs to."""
    if options.learners == 1:
        return []
    return [f"--learner_addresses={options.learner_addresses}", f"--learner_index={learner}"]


def ask_program(
    options: RunOptions, quiet: bool = False, variables: Mapping[str, str] | None = None
) -> RunOptions:
    """Has the main program check its flags before anything starts; takes half a second.

    Args:
      options: of the run.
      quiet: whether to print nothing, because a process that asks again will.
      variables: of its environment, besides those of this process.

    Returns:
      The options with the length of the run, and the program's default logdir if none was given.

    Raises:
      UserError: a flag or its value is invalid, or the run saved in the directory must not be
        resumed with these flags.
    """
    command = [sys.executable, *options.program, "--run_mode=learner", "--only_check_args"]
    command += [*options.flags, *_learner_flags(options, 0)]
    command.append(f"--num_envs={options.num_envs}")
    command.append(f"--env_batch_size={options.envs_per_actor}")
    if options.logdir:
        command.append(f"--logdir={options.logdir}")
    if options.server_address:
        command.append(f"--server_address={options.server_address}")
    try:
        asked = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, **(variables or {})},
            timeout=_ANSWER_S,
        )
    except subprocess.TimeoutExpired:
        raise UserError(
            f"{_not_a_program(options)} (It did not answer --only_check_args within {_ANSWER_S} s.)"
        ) from None
    if asked.returncode:
        raise UserError(_complaint(options, asked.stderr))
    for line in asked.stderr.splitlines():
        if line.startswith("note: ") and not quiet:  # About flags, from `old_flags`.
            print(line, file=sys.stderr)
    answer = _answer(asked.stdout)
    if answer is None:
        printed = asked.stdout.strip()
        raise UserError(
            f"{_not_a_program(options)} (It ignores --only_check_args; it printed: {printed!r})"
        )
    if not options.fresh:
        if answer["refusal"]:
            raise UserError(answer["refusal"])
        if not quiet:
            _say_what_differs(answer)
        # They cannot ask for options that may name code: see `environment_agreement`.
        options = dataclasses.replace(options, actor_flags=tuple(answer.get("environment", ())))
    logdir = pathlib.Path(answer["logdir"]).absolute()
    return dataclasses.replace(options, logdir=logdir, frames=answer.get("frames"))


def _finished(options: RunOptions) -> str | None:
    """What to say instead of starting a run that has nothing left to train; None otherwise."""
    assert options.logdir is not None
    report = progress.read(options.logdir)
    if options.fresh or options.frames is None or report is None or report.phase != "done":
        return None
    frames = checkpoint_list.saved_frames(options.logdir) or 0
    exported = (options.logdir / checkpoint_list.MODEL).exists()  # Or the learner may have to.
    return checkpoint_list.finished(frames) if exported and frames >= options.frames else None


def _say_what_differs(answer: dict[str, Any]) -> None:
    """Prints how the options of a resumed run differ from before, or from the command line."""
    kept, changed = answer.get("kept"), answer.get("changed")
    if kept:
        print(f"The saved run keeps its options: {', '.join(kept)}.", file=sys.stderr)
    if changed:
        print(f"The saved run continues with other options: {'; '.join(changed)}.", file=sys.stderr)


def _not_a_program(options: RunOptions) -> str:
    return (
        f"{options.game if games.is_file(options.game) else options.module} is not a SEED RL "
        "program, which acts as learner or actor depending on --run_mode. End it with a call to "
        "an agent's program.main(FAMILY, ...): docs/custom_environments.md."
    )


def _complaint(options: RunOptions, errors: str) -> str:
    """The message about a program that does not start."""
    lines = errors.splitlines() or [f"{options.module} failed to start"]
    message = lines[-1].removeprefix("error: ")
    if not games.is_file(options.game):
        return message.replace("(--help lists", f"({_typed(options)} --help lists")
    # How absl and argparse report an unknown flag.
    unknown = re.search(r".*(?:nknown command line flag|nrecognized arguments).*", errors)
    if unknown and re.search("run_mode|only_check_args", unknown.group()):
        return f"{_not_a_program(options)} (It said: {unknown.group().strip()})"
    places = re.findall(r'File "([^"]+)", line (\d+)', errors)
    if places and message == lines[-1]:  # Not explained.
        program = os.path.realpath(options.game)
        own = [place for place in places if os.path.realpath(place[0]) == program]
        file, line = (own or places)[-1]
        message += f" ({file}, line {line})"
    if "--agent=" in message:
        message += f": leave AGENT out, or start its own agent on {options.game}"
    return f"{options.game}: {message}".replace("(--help lists", f"({_typed(options)} --help lists")


def _typed(options: RunOptions) -> str:
    """The command to which --help adds the options of its agent and environments."""
    script = ["./run_local.sh", options.game, *filter(None, [options.agent])]
    return options.typed or shlex.join(script)


def _answer(output: str) -> dict[str, Any] | None:
    """The answer to --only_check_args in the output, to which imports may print, too."""
    for start in reversed([match.start() for match in re.finditer(r'{"logdir": ', output)]):
        with contextlib.suppress(ValueError):
            answer, _ = json.JSONDecoder().raw_decode(output, start)
            if isinstance(answer, dict) and "refusal" in answer:
                return answer
    return None


def main(
    arguments: Sequence[str],
    typed: str = "",
    usage: str = "",
    words: Mapping[str, str] | None = None,
) -> int:
    """Trains; returns the exit code.

    Args:
      arguments: of `./run_local.sh`.
      typed: see `RunOptions`.
      usage: usage line for messages; "": the script's.
      words: what messages call the script's arguments instead, by their names in the script.
    """
    try:
        options = dataclasses.replace(run_arguments.parse(arguments), typed=typed)
        check_memory(options)
        if any(flag.startswith("--stopped_exit_code") for flag in options.flags):
            raise UserError(
                "--stopped_exit_code cannot be set here: a stopped run exits with 0, and "
                '"phase" in DIR/progress.json says that it has not finished.'
            )
        if options.seeds:
            sys.stdout.flush()
            os.execv(sys.executable, [sys.executable, "-m", _STUDY, "seeds", *arguments])
        if options.learners > 1:
            addresses: set[str] = set()
            while len(addresses) < options.learners:
                addresses.add(f"localhost:{free_port()}")
            options = dataclasses.replace(options, learner_addresses=",".join(addresses))
        options = ask_program(options)
        if finished := _finished(options):
            print(finished)
            return 0
        check_port(options)
    except UserError as error:
        text = str(error)
        for word, instead in (words or {}).items():
            text = text.replace(word, instead)
        line = usage or run_arguments.usage_line()
        print(f"error: {text}\nusage: {line}   (see --help)", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    try:
        return create_supervisor(options).run()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # While it waits for the directory.
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
