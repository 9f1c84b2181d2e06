"""Watches and evaluates a trained agent: python -m seed_rl.play LOGDIR

The options of the run lie beside its checkpoints, so the same program is started again as its
learner; only, instead of training, it plays in one environment of its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.errors import UserError
from seed_rl.common.monitoring.video import Film, VideoWriter
from seed_rl.common.nest import Nest, map_structure
from seed_rl.common.run_files import checkpoint_list, run_record
from seed_rl.common.system import chatter, display, terminal
from seed_rl.common.types import EnvOutput

Act = Callable[[Nest, EnvOutput, Nest], tuple[Nest, Nest]]

# Where the run trained and who could reach it does not matter here.
_FORGOTTEN = {field.name for field in dataclasses.fields(DeviceConfig)} | {
    *("run_mode", "task", "logdir", "job-dir", "seed", "render_mode"),
    *("replay_buffer_size", "replay_buffer_min_size"),
}
# One environment is too little work for a GPU, which may be training.
_OVERRIDES = (
    "--run_mode=learner",
    "--inference_devices=cpu:0",
    "--training_devices=cpu:0",
    "--replay_buffer_size=1",
    "--replay_buffer_min_size=1",
)


@dataclasses.dataclass(frozen=True)
class Episode:
    """An episode that was played.

    Attributes:
      steps: actions taken.
      reward: sum of the rewards, not clipped.
      score: sum of the unshaped rewards, where the environment tells them.
    """

    steps: int
    reward: float
    score: float


@dataclasses.dataclass(frozen=True)
class SavedAgent:
    """What there is of a trained agent.

    Attributes:
      record: its options, see `run_record`.
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
    if (path / "saved_model.pb").exists():
        return SavedAgent(run_record.read(path.resolve().parent), None, path)
    if (path / checkpoint_list.METADATA).exists():
        return SavedAgent(run_record.read(path), path, None)
    entries = checkpoint_list.list_checkpoints(path / checkpoint_list.DIRECTORY)
    if entries:
        return SavedAgent(run_record.read(entries[-1].path), path, None)
    if (path / "saved_model" / "saved_model.pb").exists():
        return SavedAgent(run_record.read(path), None, path / "saved_model")
    raise UserError(
        f"There is no trained agent in {path}: no checkpoints/ and no saved_model/. Give the "
        "--logdir of a run that has saved a checkpoint, or a checkpoint itself."
    )


def play(arguments: argparse.Namespace, overrides: Sequence[str]) -> None:
    """Plays as the command line asks.

    Raises:
      UserError: no agent, no way to make its environment, or no pictures of it.
    """
    if arguments.render:
        display.check()
    saved = find(arguments.logdir)
    if saved.model is not None and arguments.sampled:
        raise UserError(f"The model in {saved.model} only acts greedily; leave out --sampled.")
    video = VideoWriter(arguments.video) if arguments.video else None
    played = False

    def play_instead(_run: Any, _config: Any, _placement: Any, job: Any, specs: Any) -> None:
        nonlocal played
        played = True
        if job.create_env is None:
            raise UserError("This program does not tell how to make another environment.")
        act, initial_state = _policy(saved, job.algorithm, specs, arguments.sampled)
        film = Film(job.create_env(), video)
        episodes = _episodes(film, act, initial_state, specs, arguments.seed)
        _show(episodes, arguments)

    with chatter.left_out():
        import tensorflow as tf

        tf.config.list_physical_devices()  # Looks for GPUs, now rather than later.

    from seed_rl.common.learner import learner

    record = dict(saved.record)
    kept = record.get(run_record.ARGUMENTS)
    if isinstance(kept, list):  # Else there is nobody to start, which `start_again` says.
        kept = [argument for argument in kept if _flag_name(str(argument)) not in _FORGOTTEN]
        record[run_record.ARGUMENTS] = kept
    own = [*_OVERRIDES, f"--logdir={arguments.logdir}"]
    if arguments.seed is not None:
        own.append(f"--seed={arguments.seed}")
    if arguments.render or video:
        own.append(f"--render_mode={'human' if arguments.render else 'rgb_array'}")
    own.append("--undefok=" + ",".join(_flag_name(argument) for argument in own))
    try:
        with learner.instead_of_training(play_instead):
            run_record.start_again(record, [*own, *overrides])
    finally:
        if video:
            video.close()
    if not played:
        raise UserError(f"{record[run_record.PROGRAM]} ended without making an agent.")


def _flag_name(argument: str) -> str:
    name = argument.lstrip("-").partition("=")[0]
    return name.removeprefix("no") if "=" not in argument else name


def _policy(
    saved: SavedAgent, algorithm: Any, specs: Any, sampled: bool
) -> tuple[Act, Callable[[], Nest]]:
    """How to act, and the recurrent state before the first step."""
    import tensorflow as tf

    from seed_rl.common.checkpoints import checkpoints
    from seed_rl.common.inference.inference import initialize

    if saved.weights is None:
        model = tf.saved_model.load(str(saved.model))
        one = tf.constant(1)
        return (lambda a, e, s: model.act(a, e._asdict(), s)), lambda: model.initial_state(one)

    initialize(algorithm, algorithm.agent, specs)
    checkpoints.load_weights(saved.weights, algorithm.agent)
    env_ids = tf.zeros([1], tf.int32)

    @tf.function(autograph=False)
    def act(prev_actions: Nest, env_outputs: EnvOutput, agent_state: Nest) -> tuple[Nest, Nest]:
        if not sampled:
            return algorithm.evaluate(prev_actions, env_outputs, agent_state)
        acted = algorithm.act(algorithm.agent, env_ids, prev_actions, env_outputs, agent_state)
        return acted.action, acted.agent_state

    return act, lambda: algorithm.agent.initial_state(1)


def _episodes(
    env: Any, act: Act, initial_state: Callable[[], Nest], specs: Any, seed: int | None
) -> Iterator[Episode]:
    """Plays for ever, as an actor and the learner's inference would together."""
    import tensorflow as tf

    from seed_rl.common.acting.batched_env import BatchedEnvironment

    batched = BatchedEnvironment(lambda *_: env, 1, 0)
    try:
        observation = batched.reset(seed)
        zero, false = np.zeros(1, np.float32), np.zeros(1, np.bool_)
        env_output = EnvOutput(zero, false, observation, false, np.zeros(1, np.int32))
        action = tf.nest.map_structure(lambda s: tf.zeros([1, *s.shape], s.dtype), specs.action)
        state = initial_state()
        steps, reward, score = 0, 0.0, 0.0
        while True:
            # Copied, as the next step writes into the same arrays.
            tensors = tf.nest.map_structure(lambda a: tf.constant(np.array(a)), env_output)
            action, state = act(action, tensors, state)
            step = batched.step(map_structure(lambda t: t.numpy(), action))
            # As in evaluation, whole games: not what ends only the learner's episodes.
            done = step.done & (step.abandoned | (step.episode_step == 0))
            env_output = EnvOutput(
                step.reward, done, step.observation, step.abandoned, step.episode_step
            )
            reward += float(step.reward[0])
            score += float(step.raw_reward[0])
            steps += not step.abandoned[0]
            if done[0]:
                yield Episode(steps, reward, score)
                steps, reward, score = 0, 0.0, 0.0
    finally:
        batched.close()


def _show(episodes: Iterator[Episode], arguments: argparse.Namespace) -> None:
    """Prints each episode as it ends, and a table of all."""
    console = Console()
    finished: list[Episode] = []
    try:
        with terminal.interrupt_raises():
            for episode in episodes:
                finished.append(episode)
                print(
                    f"episode {len(finished)}/{arguments.episodes}: return {episode.reward:g}, "
                    f"{episode.steps} steps",
                    file=sys.stderr,
                )
                if len(finished) == arguments.episodes:
                    break
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    finally:
        episodes.close()  # type: ignore[attr-defined]
    try:
        console.print(table(finished, "sampled" if arguments.sampled else "greedy"))
        if arguments.video:
            console.print(f"video: {arguments.video}", highlight=False)
    except BrokenPipeError:
        terminal.drop_output()


def table(episodes: Sequence[Episode], how: str) -> Table:
    """Returns and lengths, with mean and standard deviation."""
    columns = {"return": [e.reward for e in episodes], "steps": [float(e.steps) for e in episodes]}
    if any(e.score != e.reward for e in episodes):
        columns["score"] = [e.score for e in episodes]
    shown = Table(title=f"{len(episodes)} episodes, {how}", show_footer=bool(episodes))
    shown.add_column("episode", "mean ± std", justify="right")
    for name, values in columns.items():
        footer = f"{np.mean(values):.2f} ± {np.std(values):.2f}" if values else ""
        shown.add_column(name, footer, justify="right")
    for number, row in enumerate(zip(*columns.values(), strict=True), 1):
        shown.add_row(str(number), *[f"{value:g}" for value in row])
    return shown


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m seed_rl.play",
        description="Plays with a trained agent and prints its returns.",
        epilog="Other flags go to the program that trained the agent: --env_name=... and so on.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "logdir", type=Path, help="logdir of a run, or one checkpoint or exported model of it"
    )
    parser.add_argument("--episodes", type=_positive, default=10, help="how many (default: 10)")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--greedy", action="store_true", help="choose the best action (default)")
    how.add_argument("--sampled", action="store_true", help="act as environment 0 does in training")
    watch = parser.add_mutually_exclusive_group()
    watch.add_argument("--video", type=Path, help="write a video of the episodes: .mp4 or .gif")
    watch.add_argument("--render", action="store_true", help="show the environment in a window")
    parser.add_argument("--seed", type=int, help="makes the environment repeatable")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text}")
    return int(text)


def main() -> int:
    """Runs the program; returns its exit code."""
    if {"--help", "-h"} & set(sys.argv):
        terminal.end_without_reader()
    arguments, overrides = _parser().parse_known_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        play(arguments, overrides)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
