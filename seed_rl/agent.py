"""Training and trained agents in three lines, from a script or a notebook.

    agent = seed_rl.train("ppo", "HalfCheetah-v5", frames=1e6)
    print(agent.evaluate(episodes=10)["return"]["mean"])
    agent.video("cheetah.mp4", steps=200)

Everything runs in separate processes, those of the command `seed-rl`: options are its flags, with
each agent's presets, and runs can also be watched, stopped and resumed from elsewhere.
`seed_rl.experiment` trains in your own process instead.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seed_rl import command
from seed_rl.common import remote_callbacks
from seed_rl.common.callbacks import Callback as Callback
from seed_rl.common.callbacks import Report as Report
from seed_rl.common.errors import UserError as UserError
from seed_rl.common.run_files import checkpoint_list, run_record
from seed_rl.common.system import chatter, files, isolated
from seed_rl.gym import from_python
from seed_rl.launch import arguments as run_arguments
from seed_rl.launch import local
from seed_rl.launch.process import die_with_parent

if TYPE_CHECKING:
    from seed_rl.common.inference.acting_policy import ActingPolicy, ActingState

REPEATED = frozenset(("gin_config", "gin_bindings", "flagfile"))
"""Flags that are given once for each element of a list; others take lists with commas."""
_SWITCHES = frozenset(("greedy", "sampled", "render", "trust", "hide_json"))
"""Flags of `seed-rl play` and `evaluate` without a value."""


class Agent:
    """A trained agent on disk.

    Attributes:
      run: the directory of its run.
    """

    def __init__(self, run: str | Path, trust: bool = False, env: Any = None):
        """Use `train` or `load`.

        Args:
          run: the directory of a run.
          trust: whether to run code that the run names but that is not part of SEED RL, such as
            your environment's.
          env: an environment or a function that creates it, if the run's record cannot name it.
        """
        self.run = files.expanded(run).absolute()
        self._trust = trust
        self._env = env
        self._policy: ActingPolicy | None = None
        self._state: ActingState | None = None

    def __repr__(self) -> str:
        return f"Agent({str(self.run)!r})"

    def evaluate(
        self, episodes: int | None = None, envs: int | None = None, **options: Any
    ) -> dict[str, Any]:
        """Measures the agent, as `seed-rl evaluate` does.

        Args:
          episodes: how many to play; None: 100, or 10 with `video=`.
          envs: environments at once; None: up to 20, or one with `video=`.
          **options: further flags, such as `seed=1` or `sampled=True`.

        Returns:
          The contents of its JSON. "return" and "steps", "score" if it differs from the return and
          "success" if every episode reports it, are dictionaries of "mean", "low" and "high"
          (95 % interval of the mean; None for one episode), "std", "median", "min" and "max".
          "episodes" is a list with a dictionary per episode.

        Raises:
          UserError: the agent or its environment cannot be used.
        """
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "evaluation.json"
            flags = {"episodes": episodes, "envs": envs, "json": file, **options}
            self._play("seed_rl.evaluate", {**flags, "hide_json": True})
            return dict(json.loads(file.read_text(encoding="utf-8")))

    def video(self, path: str | Path, episodes: int = 1, **options: Any) -> Path:
        """Films the agent, as `seed-rl play --video` does.

        Args:
          path: of the file to write, .mp4 or .gif.
          episodes: how many to play.
          **options: further flags.

        Returns:
          The absolute path.

        Raises:
          UserError: the agent cannot be used, or its environment cannot be filmed.
        """
        path = files.expanded(path).absolute()
        self._play("seed_rl.play", {"episodes": episodes, "video": path, **options})
        return path

    def act(self, observation: Any, reward: float = 0.0, done: bool = False) -> Any:
        """Returns an action, chosen as in evaluation; keeps the recurrent state within the episode.

        Args:
          observation: nest of arrays of one environment, without a batch dimension, as in
            training: wrapped by `seed_rl.common.acting.env_wrappers.wrap_for_agent`, which also
            scales actions.
          reward: of the last action, which some networks read.
          done: whether the observation is the first of a new episode.

        Returns:
          An action as in training.

        Raises:
          UserError: no model was saved, or the observation is not like those in training.
        """
        if self._policy is None or self._state is None:
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
            with chatter.left_out():  # TensorFlow loads, and looks for GPUs.
                from seed_rl.experiment import load_policy

                self._policy = load_policy(self.run)
            self._state = self._policy.initial_state()
        action, self._state = self._policy(observation, self._state, reward, done)
        return action

    def save(self, path: str | Path) -> Path:
        """Copies the newest checkpoint and the exported model to a directory of their own.

        Args:
          path: of a directory that does not exist; `load` takes it.

        Returns:
          Its absolute path.

        Raises:
          UserError: the directory exists, or cannot be written.
        """
        path = files.expanded(path).absolute()
        temporary = path.with_name(f".{path.name}.{os.getpid()}.saving")
        entries = checkpoint_list.list_checkpoints(self.run / checkpoint_list.DIRECTORY)
        parts = [Path(run_record.FILE), Path(checkpoint_list.MODEL)]
        parts += [entry.path.relative_to(self.run) for entry in entries[-1:]]
        if path.exists():
            raise UserError(f"Cannot save the agent to {path}: File exists.")
        try:
            temporary.mkdir(parents=True)
            for part in parts:
                source, target = self.run / part, temporary / part
                if source.is_dir():
                    shutil.copytree(source, target)
                elif source.exists():
                    shutil.copy2(source, target)
            temporary.rename(path)
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            # Of several errors of `copytree`, the first.
            reason = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror
            raise UserError(f"Cannot save the agent to {path}: {reason}.") from error
        return path

    def _play(self, module: str, options: dict[str, Any]) -> None:
        options = {**options, "trust": self._trust}
        switches = {name: options.pop(name) for name in _SWITCHES & options.keys()}
        flags = [*_flags(options), *(f"--{name}" for name in switches if switches[name])]
        with _shared(self._env, self._trust) as variables:
            _run(module, [str(self.run), *flags], variables)


def train(
    agent: str,
    environment: Any,
    frames: float | None = None,
    *,
    actors: int | None = None,
    envs: int | None = None,
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> Agent:
    """Trains an agent, as `seed-rl train` does.

    Ctrl-C, or a notebook's stop button, saves a checkpoint before KeyboardInterrupt is raised. A
    call with the `logdir` of an unfinished run continues it; so does repeating the call, as long as
    a lambda or class that is not in a module is the same.

    Args:
      agent: "vtrace", "r2d2", "ppo", "pqn" or "sac".
      environment: a name (see `seed-rl --help`); a class or function that creates it, including
        lambdas and those defined in a notebook or script; or an environment object, for one actor.
      frames: environment frames; None: the agent's default.
      actors: actor processes; None: one per core, at most 8.
      envs: environments per actor; None: 8.
      callbacks: called in this process, in a thread of their own, while the learner waits; an
        exception ends the run and is raised here.
      **options: flags by name: `learning_rate=1e-3`, `mlp_sizes=[64, 64]`,
        `env_kwargs={"size": 9}`.

    Raises:
      UserError: an option is wrong, or training failed.
    """
    name = _name_of(environment)
    given = environment if name == from_python.NAME else None
    if given is not None:
        if "logdir" not in options:
            options["logdir"] = f"runs/gym-{agent}-{from_python.unique_label(given)}"
        if not callable(given):
            if (actors or 1) * (envs or 1) > 1:
                label = from_python.label(given)
                raise UserError(
                    f"{label} is one environment. For several, give a function that creates it, "
                    f"such as lambda: {label}()."
                )
            actors = envs = 1
    if frames is not None and "total_environment_frames" in options:
        raise UserError("frames= and total_environment_frames= are the same option. Leave one out.")
    sizes = {"actors": actors, "envs": envs, "total_environment_frames": frames}
    first = {"flagfile": options.get("flagfile")}  # All others take precedence.
    flags = _flags({**first, **sizes, "tensorboard": False, **options})
    module, *arguments = command.module_arguments(["train", agent, name, *flags])
    with _shared(given, trust=True) as variables:
        logdir = _checked(arguments, shlex.join(["seed-rl", "train", agent, name]), variables)
        with remote_callbacks.hosted(callbacks) as more:
            _run(module, arguments, {**variables, **more})
    return Agent(logdir, trust=True, env=given)


def _checked(arguments: Sequence[str], typed: str, variables: Mapping[str, str]) -> Path:
    """The logdir of a run whose arguments are right; an error here has the names of `train`."""
    try:
        parsed = run_arguments.parse(arguments)
        if parsed.seeds:
            raise UserError(
                "seeds= trains several agents. Call train once for each seed=, or use the command: "
                "seed-rl train ... --seeds=N"
            )
        asked = local.ask_program(
            dataclasses.replace(parsed, typed=typed), quiet=True, variables=variables
        )
    except UserError as error:
        text = str(error).replace("ENVS_PER_ACTOR", "envs=").replace("ACTORS", "actors=")
        unknown = re.search(r"Unknown command line flag '(\w+)'", text)
        own = ("frames", "actors", "envs", "callbacks")
        near = difflib.get_close_matches(unknown[1], own, cutoff=0.8) if unknown else []
        if unknown and near:
            text = f"There is no option {unknown[1]}=. Did you mean {near[0]}=?"
        raise UserError(text) from None
    assert asked.logdir is not None
    return asked.logdir


def load(run: str | Path, trust: bool = False, env: Any = None) -> Agent:
    """The agent of a run, or one that `Agent.save` has saved.

    Args:
      run: its directory.
      trust: see `Agent`.
      env: the environment as given to `train`, if that was neither a name nor importable; needed to
        evaluate or film the agent, not to act.

    Raises:
      UserError: there is none.
    """
    path = files.expanded(run)
    saved = checkpoint_list.list_checkpoints(path / checkpoint_list.DIRECTORY)
    if not saved and not (path / checkpoint_list.MODEL).exists():
        raise UserError(f"There is no trained agent in {run}.")
    return Agent(path, trust, env)


def _name_of(environment: Any) -> str:
    """What `seed-rl train` calls an environment."""
    if isinstance(environment, str):
        return environment
    if not callable(environment) and not hasattr(environment, "step"):
        raise UserError(
            f"{environment!r} is not an environment: give its name, a class or function that "
            "creates it, or an environment object."
        )
    return from_python.importable(environment) or from_python.NAME


@contextlib.contextmanager
def _shared(environment: Any, trust: bool) -> Iterator[dict[str, str]]:
    """Environment variables for processes that create `environment`; None: one by its name.

    They look for modules where this program does; in the working directory, where a logdir may have
    been unpacked, only with `trust`.
    """
    here = [os.getcwd()] if trust else []
    folders = [sys.path[0] or os.getcwd(), *here, os.environ.get("PYTHONPATH")]
    path = {"PYTHONPATH": os.pathsep.join(filter(None, folders))}
    if environment is None:
        yield path
        return
    with from_python.pickled(environment) as variables:
        yield {**variables, **path}


def _flags(options: dict[str, Any]) -> list[str]:
    """Options as on a command line; those that are None are left out."""
    flags = []
    for name, value in options.items():
        value = _plain(value)
        several = isinstance(value, (list, tuple))
        if name in REPEATED and several:
            flags += [f"--{name}={_text(one)}" for one in value]
        elif value is not None:
            text = ",".join(map(_text, value)) if several else _text(value)
            flags.append(f"--{name}={text}")
    return flags


def _text(value: Any) -> str:
    """A value as on a command line.

    Raises:
      UserError: it is a dictionary of what JSON cannot hold.
    """
    value = _plain(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if not isinstance(value, Mapping):
        return str(value)
    try:
        return json.dumps(value, default=_plain)
    except (TypeError, ValueError):  # ValueError: `_plain` has changed nothing.
        raise UserError(
            f"{value} has values that flags cannot hold. Give the environment as a function "
            "instead, such as lambda: Maze(size=9)."
        ) from None


def _plain(value: Any) -> Any:
    """Python's own value for one of NumPy."""
    return value.tolist() if hasattr(value, "tolist") else value


def _run(module: str, arguments: Sequence[str], variables: Mapping[str, str]) -> None:
    """Runs a module with its output shown here.

    Args:
      module: the program.
      arguments: its own.
      variables: of its environment, besides those of this process.

    Raises:
      UserError: it failed.
      KeyboardInterrupt: Ctrl-C was pressed, and the program has ended.
    """
    # A notebook shows what Python prints, not what child processes write; and its stop button
    # reaches only this process.
    piped = not sys.stdout.isatty()
    environment = {**os.environ, **variables}
    if piped:
        environment.pop("FORCE_COLOR", None)  # Jupyter's; it would redraw the panel forever.
    process = subprocess.Popen(
        [*isolated.command(module), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if piped else None,
        stderr=subprocess.STDOUT if piped else None,
        text=True,
        errors="replace",
        start_new_session=piped,
        env=environment,
        preexec_fn=die_with_parent(os.getpid(), signal.SIGTERM),  # Which saves a checkpoint.
    )
    problem = "its output is above"
    try:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            _, found, message = line.partition("error: ")
            problem = message.strip() if found else problem
        process.wait()
    except KeyboardInterrupt:
        if piped:
            process.send_signal(signal.SIGINT)
        rest, _ = process.communicate()
        print(rest or "", end="", flush=True)
        raise
    if process.returncode:
        problem = problem.replace("with --trust:", "with trust=True.")
        if process.returncode != UserError.exit_code:
            problem = f"{module} ended with exit code {process.returncode}: {problem}"
        raise UserError(problem)
