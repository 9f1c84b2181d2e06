"""Options that learner and actors share."""

from __future__ import annotations

import dataclasses

from seed_rl.common.config import logdirs
from seed_rl.common.config.options import Checked, option
from seed_rl.common.errors import UserError
from seed_rl.common.system import tokens
from seed_rl.grpc import addresses

LEARNER = "learner"
ACTOR = "actor"
RUN_MODES = (LEARNER, ACTOR)
MISSING_MODE = (
    "--run_mode is missing: a run has one process with --run_mode=learner and any number with "
    "--run_mode=actor, each with its own --task."
)


@dataclasses.dataclass(frozen=True)
class RunConfig(Checked):
    """Run: options that learner and actors share."""

    run_mode: str | None = option(
        None,
        "Role of this process: the learner, or one of the actors, which step environments.",
        choices=RUN_MODES,
    )
    logdir: str = option(
        logdirs.default(),
        "Directory of checkpoints, TensorBoard files and progress.json. Default: a directory in "
        "runs/, named after the program and its environment.",
        aliases=("job-dir",),
    )
    server_address: str = option(
        "localhost:8686",
        "Address at which the learner listens and to which actors connect: host:port, or "
        "unix:/path on one machine.",
    )
    num_envs: int = option(
        4,
        "Environments in the whole run, with ids from 0 to num_envs - 1; the last num_eval_envs "
        "are for evaluation.",
        minimum=1,
    )
    env_batch_size: int = option(
        1,
        "Environments per actor, stepped together with one inference call. An actor's first id is "
        "task * env_batch_size.",
        minimum=1,
    )
    num_eval_envs: int = option(
        0, "Environments used only for evaluation, never for training.", minimum=0
    )
    num_action_repeats: int = option(
        1,
        "Environment frames per action (frame skip). All frame counts and schedules are in "
        "environment frames.",
        minimum=1,
    )
    play_request: str = option(
        "", "Set by `seed-rl play`, `evaluate` and `serve`: what to do instead of training."
    )
    stopped_exit_code: int = option(
        0,
        "Exit code after SIGTERM or SIGINT, unless all frames are used. For engines such as "
        "Kubernetes, which treat 0 as finished and do not restart the process.",
        minimum=0,
        maximum=255,
    )
    task: int = option(
        0,
        "Index of this process among those of its run mode, from 0. Actors: -1 asks the learner "
        "for environments that no other actor steps.",
        minimum=-1,
    )
    seed: int | None = option(
        None,
        "Random seed of environments and initial weights. Default: random.",
        minimum=0,
        maximum=2**32 - 1,  # NumPy's global generator takes no larger ones.
    )
    auth_token_file: str | None = option(
        None, "File with the secret that authenticates actors to the learner. Default: no secret."
    )
    tls_ca: str | None = option(
        None,
        "Actors: PEM file with the learner's certificate authority; turns on TLS.",
    )
    tls_cert: str | None = option(
        None,
        "Actors: PEM file with their own certificate chain, for the proxy in front of the learner.",
    )
    tls_certificate: str | None = option(
        None, "Learner: PEM file with its certificate chain; turns on TLS."
    )
    tls_key: str | None = option(
        None, "PEM file with the private key of tls_certificate (learner) or tls_cert (actors)."
    )
    insecure: bool = option(
        False,
        "Learner: serve other machines without a proxy in front, or train with other learners, "
        "in a network where you trust everyone. Off: the learner refuses to.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_address(self.server_address)

    def required_mode(self) -> str:
        """The run mode.

        Raises:
          UserError: --run_mode is missing.
        """
        if self.run_mode is None:
            raise UserError(MISSING_MODE)
        return self.run_mode

    @property
    def training_envs(self) -> int:
        """Number of environments that are trained on; their ids come first."""
        return self.num_envs - self.num_eval_envs

    def played_env_id(self, index: int) -> int:
        """The id of the environment in which `seed-rl play` and `evaluate` play as the `index`-th.

        Takes turns among those for evaluation, if the run has any, as they may have levels of their
        own; otherwise among all.
        """
        first = max(0, self.training_envs) if self.num_eval_envs else 0
        return first + index % (self.num_envs - first)

    def check_exposure(self) -> None:
        """Checks that a learner is not exposed to other machines by mistake.

        Raises:
          UserError: other machines can reach --server_address.
        """
        if addresses.is_remote(self.server_address) and not self.insecure:
            raise UserError(
                f"Refusing to serve --server_address={self.server_address}, which other machines "
                "can reach: the learner is not hardened against attacks and needs a "
                "proxy in front of it. ./run_local.sh --expose starts one; elsewhere, "
                "SEED_RL_PROXY does (docs/security.md). In a network where you trust every "
                "machine, add --insecure. Actors on this machine need only localhost:PORT or "
                "unix:/path."
            )

    def risk(self) -> str:
        """The risk of serving other machines without a proxy; "" if none can reach the learner."""
        if not addresses.is_remote(self.server_address):
            return ""
        risk = "make this run wait or use up its memory"
        if self.auth_token_file is None:
            risk = f"take part in this run, {risk}"
        if self.tls_certificate is None:
            risk += ", and read and change what actors send"
        return f"Any machine that can reach {self.server_address} can {risk}."

    def auth_token(self) -> str | None:
        """The secret in `auth_token_file`, without surrounding whitespace.

        Logs a warning, once, if other users can read the file.

        Raises:
          UserError: the file cannot be read, is empty, or holds more than a token.
        """
        if self.auth_token_file is None:
            return None
        return tokens.read(self.auth_token_file, "--auth_token_file")


def check_address(address: str) -> None:
    """Checks the syntax of --server_address.

    Raises:
      UserError: it is neither host:port nor unix:/path.
    """
    if address.startswith(("unix:", "unix-abstract:")):
        ok = not address.endswith(":")
    else:
        _, colon, port = address.rpartition(":")
        ok = bool(colon) and port.isdecimal() and int(port) < 2**16
    if not ok:
        raise UserError(
            f"--server_address={address} is not an address: use host:port with a port below "
            "65536, such as localhost:8686, or unix:/path/to/socket."
        )
