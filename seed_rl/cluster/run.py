"""The description of a run on several machines: the command line of each of its processes.

An orchestrator (Docker, Kubernetes, Slurm, ...) starts, restarts and stops the processes.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import sys
from collections.abc import Sequence

from seed_rl.cluster import learners, secrets
from seed_rl.common.errors import UserError
from seed_rl.common.system import flag_files
from seed_rl.grpc import addresses
from seed_rl.launch import arguments as run_arguments
from seed_rl.launch.arguments import RunOptions
from seed_rl.launch.proxy import Proxy

_TENSORBOARD_PORT = 6006
_LOGDIR = ("--logdir=", "--job-dir=")
MOVED_S = 30
"""An actor that cannot reach the learner for this long exits, and is restarted to look up its
address again."""
SAVE_S = 90
"""Seconds between a learner's checkpoints by default: its machine may be lost at any time."""

_NO_ADDRESS = (
    "The learner's address is missing: set SEED_RL_ADDRESS=HOST:PORT, as actors reach it, or "
    "SEED_RL_ADDRESS_FILE to a file that the learner writes it to and all processes can read."
)


@dataclasses.dataclass(frozen=True)
class ClusterRun:
    """A run.

    Attributes:
      options: of the whole run, from the command line; their `logdir` and addresses are not used.
      logdir: a directory or URL (gs://...); None: the program's default.
      address: the learner's HOST:PORT as actors reach it, or unix:/path; None: not known, which
        only TensorBoard accepts. Of several learners, as `learners.split` reads them.
      learner: which of several learners this process is, or whose proxy it is.
      bind: host at which the learner, or the proxy, listens; None: its own loopback address if that
        is where the actors reach it, otherwise all addresses of its machine (IPv6 ones if `address`
        is one).
      proxied: path of the Unix socket at which the learner listens instead, behind a proxy; None:
        there is no proxy.
      moves: whether the learner may come back at another address, so that actors should exit soon
        and be restarted.
      secrets: directory of token and certificates.
      evaluators: number of evaluators, whose environments are the run's evaluation environments.
      tensorboard_host: host at which TensorBoard listens.
    """

    options: RunOptions
    logdir: str | None = None
    address: str | None = None
    learner: int = 0
    bind: str | None = None
    proxied: pathlib.Path | None = None
    moves: bool = False
    secrets: pathlib.Path | None = None
    evaluators: int = 0
    tensorboard_host: str = "localhost"

    def learner_command(self) -> list[str]:
        """The learner's command line.

        Raises:
          UserError: the address is missing or malformed, or a secret is missing.
        """
        flags = secrets.flags(self.secrets, "learner")
        if not _saves_each_replay(self.options.flags):
            flags.append(f"--save_checkpoint_secs={SAVE_S}")
        if self.proxied:  # Which encrypts.
            flags = [flag for flag in flags if not flag.startswith("--tls_")]
            return self._command("learner", flags, f"unix:{self.proxied}")
        return self._command("learner", flags, self._listen_address())

    def proxy(self, directory: pathlib.Path) -> Proxy:
        """The proxy in front of the learner.

        Args:
          directory: a private one, for its sockets.

        Raises:
          UserError: the address, the learner's socket or the secrets are missing.
        """
        if self.proxied is None:
            raise UserError(
                "The proxy does not know where the learner listens: set SEED_RL_PROXY to the path "
                "of a Unix socket in a directory that both share."
            )
        if self.secrets is None:
            raise UserError("The proxy needs certificates: set SEED_RL_SECRETS to their directory.")
        return Proxy(self._listen_address(), self.proxied, self.secrets, directory)

    def actor_command(self, index: int) -> list[str]:
        """The command line of an actor.

        Args:
          index: of the actor, from 0.

        Raises:
          UserError: there is no such actor, or the address is missing or malformed.
        """
        actors, count = self.options.actors, self.options.learners
        check_index("actor", index, actors, "ACTORS on the command line")
        return self._client_command(*divmod(index, actors // count))

    def evaluator_command(self, index: int) -> list[str]:
        """The command line of an evaluator: an actor with evaluation environments.

        Args:
          index: of the evaluator, from 0.

        Raises:
          UserError: there is no such evaluator, or the address is missing or malformed.
        """
        check_index("evaluator", index, self.evaluators, "SEED_RL_EVALUATORS, for all processes")
        learner, place = divmod(index, self.evaluators // self.options.learners)
        return self._client_command(learner, self.options.actors // self.options.learners + place)

    def tensorboard_command(self) -> list[str]:
        """TensorBoard's command line.

        Raises:
          UserError: the logdir is not given.
        """
        if self.logdir is None:
            raise UserError("TensorBoard needs to know the run's directory: --logdir=DIR.")
        # Our program does not load TensorFlow, which non-local files need.
        remote = "://" in self.logdir
        return [
            *(sys.executable, "-m"),
            "tensorboard.main" if remote else "seed_rl.launch.tensorboard",
            f"--logdir={self.logdir}",
            f"--host={self.tensorboard_host}",
            f"--port={self.options.tensorboard_port or _TENSORBOARD_PORT}",
        ]

    def _client_command(self, learner: int, task: int) -> list[str]:
        flags = secrets.flags(self.secrets, "actor")
        if self.moves:
            flags += [f"--connect_timeout_s={MOVED_S}", f"--reconnect_timeout_s={MOVED_S}"]
        own = dataclasses.replace(self, learner=learner)
        return [*own._command("actor", flags, own._address()), f"--task={task}"]

    def _command(self, run_mode: str, defaults: Sequence[str], address: str) -> list[str]:
        envs, count = self.options.envs_per_actor, self.options.learners
        command = [sys.executable, *self.options.program, *defaults, *self.options.flags]
        # Later flags win: a flag file must not change these.
        command += [
            f"--run_mode={run_mode}",
            f"--server_address={address}",
            f"--num_envs={(self.options.actors + self.evaluators) // count * envs}",
            f"--env_batch_size={envs}",
        ]
        if self.logdir is not None:
            command.append(f"--logdir={self.logdir}")
        if self.evaluators:
            command.append(f"--num_eval_envs={self.evaluators // count * envs}")
        if count > 1:
            command += learners.flags(self._addresses(), self.learner)
        return command

    def _addresses(self) -> list[str]:
        if self.address is None:
            raise UserError(_NO_ADDRESS)
        return learners.split(self.address, self.options.learners)

    def _address(self) -> str:
        return check_address(self._addresses()[self.learner])

    def _listen_address(self) -> str:
        address = self._address()
        if addresses.is_unix(address):
            return address
        host, _, port = address.rpartition(":")
        if self.bind:
            return f"{self.bind}:{port}"
        if not addresses.is_public(address):
            return address
        return f"{'[::]' if host.startswith('[') else '0.0.0.0'}:{port}"


def parse(arguments: Sequence[str], evaluators: int = 0) -> tuple[RunOptions, str | None]:
    """Parses the command line.

    Args:
      arguments: those of `./run_local.sh`, but the logdir may be a URL.
      evaluators: their number.

    Returns:
      The options, and the logdir, if given.

    Raises:
      UserError: they are invalid; the message says what to change.
    """
    logdirs = [a.partition("=")[2] for a in arguments if a.startswith(_LOGDIR)]
    options = run_arguments.parse([a for a in arguments if not a.startswith(_LOGDIR)])
    if options.game == run_arguments.EXTERNAL:
        raise UserError(
            "A cluster cannot start external actors. Start the learner with ./run_local.sh "
            "external ... --expose, and the actors on any machine (docs/clients.md)."
        )
    if options.server_address:
        raise UserError(
            "--server_address cannot be set here: set SEED_RL_ADDRESS, for all processes."
        )
    if options.fresh:
        raise UserError(
            "--restart=fresh cannot be set here, as each restart of the learner would start over: "
            "choose another --logdir, or move the old one aside."
        )
    local_only = {
        "--seeds": options.seeds,
        "--expose": options.expose,
        "--remote_actors": options.remote_actors,
        "--tensorboard=false": not options.tensorboard,
    }
    for flag, given in local_only.items():
        if given:
            raise UserError(f"{flag} is for ./run_local.sh alone: leave it out here.")
    if evaluators and any(f.lstrip("-").startswith("num_eval_envs=") for f in options.flags):
        raise UserError(
            "--num_eval_envs cannot be set along with SEED_RL_EVALUATORS: it is "
            "SEED_RL_EVALUATORS x ENVS_PER_ACTOR."
        )
    if evaluators % options.learners:
        raise UserError(
            f"SEED_RL_EVALUATORS={evaluators} cannot be divided among {options.learners} learners; "
            "choose a multiple."
        )
    if options.learners > 1 and logdirs and "://" in logdirs[-1]:
        raise UserError(
            f"--logdir={logdirs[-1]}: {options.learners} learners need a directory that all of "
            "them see, such as one on NFS."
        )
    if not logdirs:
        return options, None
    if not logdirs[-1]:
        raise UserError("--logdir needs a value: --logdir=DIR")
    return options, os.path.expanduser(logdirs[-1])


def stopped_code(arguments: Sequence[str]) -> int:
    """--stopped_exit_code of a command line; 0 if it is not a number, which the program refuses."""
    given = [a.partition("=")[2] for a in arguments if a.startswith("--stopped_exit_code=")]
    return int(given[-1]) if given and given[-1].isdecimal() else 0


def _saves_each_replay(flags: Sequence[str]) -> bool:
    """Whether each checkpoint includes the replay; the program's longer period is then kept.

    A bucket gets the whole replay with each checkpoint, which must last until it is uploaded.
    """
    try:
        # A pipe is left for the program, which reports what cannot be read.
        given = [flag for flag, _ in flag_files.expanded(flags, again=True)]
    except UserError:
        return False
    values = [flag.partition("=")[2] for flag in given if re.match("--?save_replay=", flag)]
    return values[-1:] == ["always"]


def check_address(address: str) -> str:
    """Checks that an address has a host and a port, and returns it.

    Raises:
      UserError: one is missing.
    """
    host, _, port = address.rpartition(":")
    if addresses.is_unix(address) or (host and port.isdecimal() and 0 < int(port) < 2**16):
        return address
    raise UserError(
        f"'{address}' is not the address of a learner: SEED_RL_ADDRESS must be HOST:PORT, such as "
        "learner:8686."
    )


def check_index(kind: str, index: int, count: int, setting: str) -> None:
    """Raises a `UserError` naming `setting` if the run has no process of this kind and index."""
    if index >= count:
        known = f"has {count} (0 to {count - 1})" if count else "has none"
        raise UserError(
            f"There is no {kind} {index}: the run {known}. Start fewer {kind}s, or raise {setting}."
        )
