"""The command line: `python -m seed_rl.conformance`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from rich.console import Console

from seed_rl.common.errors import exits
from seed_rl.common.system import chatter
from seed_rl.common.types import Spaces
from seed_rl.conformance.checks import Conformance
from seed_rl.external.env import ExternalConfig


@exits
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code: 0 if the client passes, else 1."""
    given = list(sys.argv[1:] if argv is None else argv)
    own, command = given, []
    if "--" in given:
        own, command = given[: given.index("--")], given[given.index("--") + 1 :]
    options = vars(_parser().parse_args(own))
    observations, actions = options.pop("observations"), options.pop("actions")
    of = None
    if observations or actions:
        config = ExternalConfig(observations or "", actions or "")
        of = Spaces(config.space("observations"), config.space("actions"))
    conformance = Conformance(command, options.pop("server_address"), of=of, **options)
    # Hides TensorFlow's messages about the failed call, which is part of the test.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with chatter.left_out():
        passes = conformance.play()
    Console(soft_wrap=True, highlight=False).print(conformance.report())
    return 0 if passes else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="seed-rl conformance",
        usage="%(prog)s [FLAGS] [-- COMMAND ...]",
        description="Checks a client in any language (docs/wire_actor.md). COMMAND starts it; an "
        "actor's flags are appended. Its environment is CartPole-v1, or what --observations and "
        "--actions describe. Without COMMAND, prints an address, waits for a client that you "
        "start, and leaves out the checks of exit codes.",
    )
    parser.add_argument(
        "--observations",
        help="observations of another environment, as for `seed-rl train AGENT external`",
    )
    parser.add_argument(
        "--actions", help="with --observations: actions of that environment; random ones are sent"
    )
    parser.add_argument("--server_address", default="localhost:0", help="where to listen")
    parser.add_argument(
        "--client_address",
        help="address that the client connects to, if a proxy is in front of the server",
    )
    parser.add_argument(
        "--patience_s", type=float, default=30.0, help="seconds to wait for the client's reaction"
    )
    parser.add_argument(
        "--slow_s", type=float, default=5.0, help="delay in seconds of the deliberately slow answer"
    )
    parser.add_argument("--tls_certificate", help="PEM file; turns on TLS")
    parser.add_argument("--tls_key", help="PEM file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
