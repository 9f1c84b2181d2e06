"""Plays a trained agent: seed-rl play LOGDIR; `seed_rl.evaluate` measures it.

The options of a run are stored with its checkpoints. This program restarts the training program as
a learner with a request (`--play_request`) to play instead of training. The environment is stepped
and filmed by a second such process, an actor: see `environment_process`.
"""

from __future__ import annotations

import os
import sys

from seed_rl.common.system import isolated

_MAIN = getattr(sys.modules["__main__"], "__spec__", None)
if "-m" in sys.orig_argv and _MAIN and _MAIN.parent == "seed_rl":
    # `python -m seed_rl.play` imports from the working directory first.
    if sys.path[0] == os.getcwd() and not isolated.is_ours("."):
        del sys.path[0]

import argparse
import dataclasses
import json
import signal
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from seed_rl.common.acting.environment_process import EnvironmentRequest
from seed_rl.common.acting.video import VideoWriter
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.errors import UserError, exits
from seed_rl.common.run_files import checkpoint_list, foreign_code, run_record
from seed_rl.common.system import chatter, display, files, terminal

# Options of the run that do not apply to playing.
_FORGOTTEN = {field.name for field in dataclasses.fields(DeviceConfig)} | {
    *("run_mode", "task", "logdir", "job-dir", "seed", "render_mode", "play_request", "insecure"),
    *("replay_buffer_size", "replay_buffer_min_size"),
}
# Nothing is trained on.
_OVERRIDES = ("--replay_buffer_size=1", "--replay_buffer_min_size=1")
_FEW = 25  # Episodes that a table lists one by one.


@dataclasses.dataclass(frozen=True)
class SavedAgent:
    """A trained agent on disk.

    Attributes:
      record: options of its run, see `run_record`.
      weights: a checkpoint, or a directory of them; None if there is only a model.
      model: an exported model.
    """

    record: dict[str, Any]
    weights: Path | None
    model: Path | None


def find(path: Path) -> SavedAgent:
    """The agent in a logdir, in one checkpoint, or in an exported model.

    Raises:
      UserError: there is none.
    """
    # Not `Path.exists`, which raises if the folder cannot be entered: reading it then fails.
    if os.path.exists(path / "saved_model.pb"):
        return SavedAgent(run_record.read(path.resolve().parent), None, path)
    if os.path.exists(path / checkpoint_list.METADATA):
        return SavedAgent(run_record.read(path), path, None)
    entries = checkpoint_list.list_checkpoints(path / checkpoint_list.DIRECTORY)
    if entries:
        return SavedAgent(run_record.read(entries[-1].path), path, None)
    model = path / checkpoint_list.MODEL
    if (model / "saved_model.pb").exists():
        return SavedAgent(run_record.read(path), None, model)
    if path.is_dir():
        run_record.read(path)  # Has the better message if there is no run at all.
    raise UserError(
        f"There is no trained agent in {path}: no checkpoints/ and no saved_model/. Give the "
        "--logdir of a run that has saved a checkpoint, or a checkpoint itself."
    )


def play(arguments: argparse.Namespace, overrides: Sequence[str]) -> None:
    """Plays according to the command line, and prints a table of the episodes.

    Raises:
      SystemExit: its program failed, and printed why.
      UserError: there is no agent, its code is not trusted, or its environment cannot be created
        or shown.
    """
    if arguments.render:
        display.check()
    saved = find(arguments.logdir)
    trusted = ask_for_trust(arguments, saved.record)
    if saved.model is not None and arguments.sampled:
        raise UserError(f"The model in {saved.model} only acts greedily; leave out --sampled.")
    shown = arguments.video or arguments.render
    if arguments.episodes is None:
        arguments.episodes = 10 if shown or not arguments.evaluates else 100
    if arguments.envs is None:
        measured = arguments.evaluates and not shown
        arguments.envs = min(20, arguments.episodes) if measured else 1
    elif arguments.envs > 1 and shown:
        raise UserError("Several environments cannot be shown: leave out --envs.")
    if arguments.video:
        VideoWriter(arguments.video).close()  # Fails now rather than after loading the agent.
    if arguments.json:
        check_writable(arguments.json)  # Likewise.
    load_tensorflow()  # Takes seconds: not before a mistyped name is refused.
    from seed_rl.common.learner.playing import Episode, PlayRequest

    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "episodes"
        request = PlayRequest(
            results=str(results),
            # The same command, so that both processes start the same program with the same flags.
            environment=[
                *(*isolated.command("seed_rl.play"), "--step_environment"),
                f"--envs={arguments.envs}",
                *(["--trust"] if trusted else []),
                *sys.argv[1:],
            ],
            episodes=arguments.episodes,
            steps=arguments.steps,
            weights=str(saved.weights) if saved.weights else None,
            model=str(saved.model) if saved.model else None,
            sampled=arguments.sampled,
            seed=arguments.seed,
        )
        own = ["--run_mode=learner", f"--play_request={request.to_json()}", *_seed(arguments)]
        failure: BaseException | None = None
        try:
            start_program(arguments.logdir, saved.record, own, overrides)
        except (SystemExit, UserError) as error:
            if not (results.exists() and results.stat().st_size):
                raise
            failure = error  # An environment's, perhaps after hours of episodes.
        if not results.exists():
            raise UserError(f"{saved.record[run_record.PROGRAM]} ended without creating an agent.")
        lines = results.read_text(encoding="utf-8").splitlines()
        report([Episode(**json.loads(line)) for line in lines], arguments)
        if failure:
            raise failure


def load_tensorflow() -> None:
    """Imports it and looks for GPUs, without the messages of either."""
    interrupt: Any = terminal.interrupt_ends()
    with chatter.left_out():
        import tensorflow as tf

        tf.config.list_physical_devices()
    signal.signal(signal.SIGINT, interrupt)


def _step_environment(arguments: argparse.Namespace, overrides: Sequence[str]) -> None:
    """Steps the environment for the process in which `play` runs, and has asked for trust."""
    record = find(arguments.logdir).record
    ask_for_trust(arguments, record)
    video = str(arguments.video) if arguments.video else None
    request = EnvironmentRequest(video, arguments.envs).to_json()
    own = ["--run_mode=actor", f"--play_request={request}", *_seed(arguments)]
    if video:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # Else SDL looks for a display.
    if arguments.render or video:
        own.insert(0, f"--render_mode={'human' if arguments.render else 'rgb_array'}")
    start_program(arguments.logdir, record, own, overrides)


def ask_for_trust(arguments: argparse.Namespace, record: dict[str, Any]) -> bool:
    """Asks at the terminal, unless --trust is given, whether the run's foreign code may run.

    It may then be in the working directory, as in training.

    Returns:
      Whether there is some, or --trust is given.

    Raises:
      UserError: the user refuses, or there is no terminal to ask at.
    """
    code = foreign_code.find(record)
    if code and not arguments.trust:
        listed = "".join(f"\n  {line}" for line in code)
        named = f"The config.json of {arguments.logdir} names code that is not part of SEED RL"
        if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UserError(f"{named}. If you trust it, let it run with --trust:{listed}")
        print(f"{named}:{listed}\nRun it? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise UserError("Not run.")
    trusted = bool(code or arguments.trust)
    if trusted:
        sys.path.insert(0, os.getcwd())
    return trusted


def _seed(arguments: argparse.Namespace) -> list[str]:
    return [] if arguments.seed is None else [f"--seed={arguments.seed}"]


def start_program(
    logdir: Path, saved: dict[str, Any], flags: Sequence[str], typed: Sequence[str]
) -> None:
    """Runs the recorded program in this process, with further flags.

    Args:
      logdir: of the run.
      saved: options of the run.
      flags: ours, which a program that does not use `AgentProgram` may lack.
      typed: the user's, possibly misspelt.

    Raises:
      UserError: it cannot be started.
    """
    record = {name: value for name, value in saved.items() if name not in _FORGOTTEN}
    kept = record.get(run_record.ARGUMENTS)
    if isinstance(kept, list):  # Otherwise `start_again` reports what is wrong.
        kept = [argument for argument in kept if _flag_name(str(argument)) not in _FORGOTTEN]
        record[run_record.ARGUMENTS] = kept
    own = [*_OVERRIDES, f"--logdir={logdir}", *flags]
    # Not --play_request: a program that ignored it would train.
    unknown = {_flag_name(flag) for flag in own} - {"play_request"} | {"run_mode", "render_mode"}
    run_record.start_again(record, [f"--undefok={','.join(sorted(unknown))}", *own, *typed])


def _flag_name(argument: str) -> str:
    name = argument.lstrip("-").partition("=")[0]
    return name.removeprefix("no") if "=" not in argument else name


def check_writable(path: Path) -> None:
    """Checks that a file can be written, without touching an earlier one."""
    # /dev/stdout may be a file, but root would replace it for everyone.
    if path.exists() and (not path.is_file() or path.absolute().parent == Path("/dev")):
        raise UserError(f"Cannot write {path}: it is not a file that can be replaced.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UserError(f"Cannot write {path}: {error.strerror}.") from error


def _write_json(path: Path, episodes: Sequence[Any], arguments: argparse.Namespace) -> None:
    record = {
        "run": str(arguments.logdir),
        "actions": "sampled" if arguments.sampled else "greedy",
        "seed": arguments.seed,
        "stopped_early": len(episodes) < (arguments.episodes or 0),
        **{name: summary(values) for name, values in columns(episodes).items() if values},
        "episodes": [dataclasses.asdict(episode) for episode in episodes],
    }
    try:
        files.write_atomically(path, json.dumps(record, indent=1) + "\n")
    except OSError as error:
        raise UserError(f"Cannot write {path}: {error.strerror}.") from error


def report(episodes: Sequence[Any], arguments: argparse.Namespace) -> None:
    """Prints a table of `playing.Episode`s, and writes what the command line asks for.

    Raises:
      UserError: the file cannot be written.
    """
    if arguments.json:
        _write_json(arguments.json, episodes, arguments)
    console = Console()
    try:
        how = "sampled" if arguments.sampled else "greedy"
        if 0 < len(episodes) < (arguments.episodes or 0) and arguments.envs > 1:
            how += f"; stopped early, of {arguments.episodes}: long episodes are under-represented"
        console.print(table(episodes, how))
        if arguments.video:
            console.print(f"video: {arguments.video}", highlight=False)
        if arguments.json and not arguments.hide_json:
            console.print(f"all episodes: {arguments.json}", highlight=False)
    except BrokenPipeError:
        terminal.drop_output()


def columns(episodes: Sequence[Any]) -> dict[str, list[float]]:
    """`playing.Episode`s by name; the score only if it differs, the success if all report it."""
    named = {"return": [e.reward for e in episodes], "steps": [float(e.steps) for e in episodes]}
    if any(e.score != e.reward for e in episodes):
        named["score"] = [e.score for e in episodes]
    if episodes and all(e.success is not None for e in episodes):
        named["success"] = [e.success for e in episodes]
    return named


def summary(values: Sequence[float]) -> dict[str, float | None]:
    """Mean with its 95 % interval (1.96 standard errors), standard deviation and quantiles.

    The interval of a single value is None.
    """
    mean = float(np.mean(values))
    deviation = float(np.std(values))
    spread = 1.96 * deviation / (len(values) - 1) ** 0.5 if len(values) > 1 else None
    return {
        "mean": mean,
        "low": None if spread is None else mean - spread,
        "high": None if spread is None else mean + spread,
        "std": deviation,
        "median": float(np.median(values)),
        "min": float(np.min(values)),
        "max": float(np.max(values)),
    }


def table(episodes: Sequence[Any], how: str) -> Table:
    """Each episode if they are few, and a summary."""
    named = columns(episodes)
    shown = Table(title=f"{len(episodes)} episode{'s' * (len(episodes) != 1)}, {how}")
    shown.add_column("episode", justify="right")
    for name in named:
        shown.add_column(name, justify="right")
    if len(episodes) <= _FEW:
        for number, row in enumerate(zip(*named.values(), strict=True), 1):
            shown.add_row(str(number), *[f"{value:g}" for value in row])
        shown.add_section()
    if len(episodes) > 1:
        found = [summary(values) for values in named.values()]
        shown.add_row("mean ± std", *[f"{one['mean']:.2f} ± {one['std']:.2f}" for one in found])
        shown.add_row("95 % interval", *[f"{one['low']:.2f} to {one['high']:.2f}" for one in found])
        shown.add_row("median", *[f"{one['median']:g}" for one in found])
        shown.add_row("range", *[f"{one['min']:g} to {one['max']:g}" for one in found])
    return shown


def _parser(evaluates: bool) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"seed-rl {'evaluate' if evaluates else 'play'}",
        description="Runs a trained agent in its environment and prints the returns.",
        epilog="Other flags go to the program that trained the agent: --env_name=... and so on.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "logdir",
        metavar="RUN",
        type=files.expanded,
        help="the directory of a run, or one checkpoint or exported model of it",
    )
    number = "100, or 10 with --video or --render" if evaluates else "10"
    parser.add_argument("--episodes", type=positive, help=f"number to play (default: {number})")
    parser.add_argument(
        "--steps",
        type=positive,
        help="stop after this many actions in each environment, even within an episode",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--greedy",
        action="store_true",
        help="act as in evaluation: take the best action, in r2d2 and pqn a random one with "
        "probability eval_epsilon (default)",
    )
    how.add_argument(
        "--sampled",
        action="store_true",
        help="explore as environment 0 does in training",
    )
    watch = parser.add_mutually_exclusive_group()
    watch.add_argument(
        "--video", type=files.expanded, help="write a video of the episodes: .mp4 or .gif"
    )
    envs = "one per episode, at most 20; 1 with --video or --render" if evaluates else "1"
    parser.add_argument(
        "--envs", type=positive, help=f"environments played in parallel (default: {envs})"
    )
    parser.set_defaults(evaluates=evaluates)
    parser.add_argument(
        "--json", type=files.expanded, help="write all episodes and their summary to a file"
    )
    # `Agent.evaluate` reads and deletes the file.
    parser.add_argument("--hide_json", action="store_true", help=argparse.SUPPRESS)
    watch.add_argument("--render", action="store_true", help="show the environment in a window")
    parser.add_argument("--seed", type=int, help="seed of the environments (default: random)")
    parser.add_argument(
        "--trust",
        action="store_true",
        help="run code that is not part of SEED RL without asking",
    )
    parser.add_argument("--step_environment", action="store_true", help=argparse.SUPPRESS)
    return parser


def positive(text: str) -> int:
    """The value of a flag; raises `ArgumentTypeError`."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text}")
    return int(text)


def main(evaluates: bool = False) -> int:
    """Runs the program, or `seed_rl.evaluate`, which has other defaults; returns its exit code."""
    return run(_parser(evaluates), play)


@exits
def run(
    parser: argparse.ArgumentParser, work: Callable[[argparse.Namespace, list[str]], None]
) -> int:
    """Runs a program that restarts a run's program; returns its exit code.

    Args:
      parser: of the command line.
      work: called with the arguments that `parser` knows, and with all other flags.
    """
    if {"--help", "-h"} & set(sys.argv):
        terminal.end_without_reader()
    arguments, overrides = parser.parse_known_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    terminal.replace_unknown_characters()
    if getattr(arguments, "step_environment", False):
        work = _step_environment
    work(arguments, overrides)
    return 0


if __name__ == "__main__":
    sys.exit(main())
