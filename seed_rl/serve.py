"""Serves a trained agent to actors over the wire: python -m seed_rl.serve LOGDIR

As in training, actors send observations and receive actions, in one batch for all of them, on the
accelerator if there is one. Nothing is trained; a newer checkpoint is loaded when it appears.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from seed_rl import play
from seed_rl.common.errors import UserError
from seed_rl.common.system import files


def serve(arguments: argparse.Namespace, overrides: list[str]) -> None:
    """Serves according to the command line, and prints a table of the episodes.

    Raises:
      UserError: there is no agent, its code is not trusted, or the address cannot be used.
    """
    saved = play.find(arguments.logdir)
    if saved.weights is None:
        raise UserError(f"There are no checkpoints in {arguments.logdir}, only a model.")
    play.ask_for_trust(arguments, saved.record)
    if arguments.json:
        play.check_writable(arguments.json)  # Fails now rather than after the episodes.
    play.load_tensorflow()
    from seed_rl.common.learner.playing import Episode
    from seed_rl.common.learner.policy_server import ServeRequest

    # In memory: a server may run for longer than cleaners leave a temporary file alone.
    with open(os.memfd_create("episodes"), "r+", encoding="utf-8") as results:
        request = ServeRequest(
            weights=str(saved.weights),
            results=f"/proc/self/fd/{results.fileno()}",
            episodes=arguments.episodes,
            every=bool(arguments.episodes or arguments.json),
            sampled=arguments.sampled,
            refresh_s=arguments.refresh_s,
        )
        own = ["--run_mode=learner", f"--server_address={arguments.server_address}"]
        own += [f"--num_envs={arguments.num_envs}", "--env_batch_size=1", "--num_eval_envs=0"]
        own.append(f"--play_request={request.to_json()}")
        play.start_program(arguments.logdir, saved.record, own, overrides)
        arguments.envs = arguments.num_envs
        play.report([Episode(**json.loads(line)) for line in results], arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="seed-rl serve",
        description="Serves a trained agent to actors, such as those of docs/clients.md.",
        epilog="Other flags go to the program that trained the agent: --auth_token_file, ...",
        allow_abbrev=False,
    )
    parser.add_argument(
        "logdir",
        metavar="RUN",
        type=files.expanded,
        help="the directory of a run, or one checkpoint of it",
    )
    parser.add_argument(
        "--server_address",
        default="localhost:8686",
        help="host:port or unix:/path (default: localhost:8686)",
    )
    parser.add_argument(
        "--num_envs",
        type=play.positive,
        default=256,
        help="maximum number of environments at a time (default: 256)",
    )
    parser.add_argument(
        "--episodes",
        type=play.positive,
        help="measure the agent: end after this many episodes, equally many in each of "
        "--num_envs environments (default: serve until stopped)",
    )
    parser.add_argument(
        "--json", type=files.expanded, help="write all episodes and their summary to a file"
    )
    parser.add_argument(
        "--sampled", action="store_true", help="explore as environment 0 does in training"
    )
    parser.add_argument(
        "--refresh_s",
        type=float,
        default=10.0,
        help="seconds between checks for a newer checkpoint; 0: never (default: 10)",
    )
    parser.add_argument(
        "--trust", action="store_true", help="run code that is not part of SEED RL without asking"
    )
    parser.set_defaults(video=None, hide_json=False, seed=None)
    return parser


def main() -> int:
    """Runs the program; returns its exit code."""
    return play.run(_parser(), serve)


if __name__ == "__main__":
    sys.exit(main())
