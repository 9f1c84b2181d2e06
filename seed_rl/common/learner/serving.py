"""The learner's server: inference for actors over gRPC."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import tensorflow as tf

from seed_rl import grpc
from seed_rl.common.acting import environment_agreement, spaces
from seed_rl.common.acting.environment_agreement import ENVIRONMENT
from seed_rl.common.errors import UserError
from seed_rl.common.inference.env_claims import EnvClaims
from seed_rl.common.inference.inference import CentralInference
from seed_rl.common.types import ACTION_SPACE
from seed_rl.grpc import addresses

if TYPE_CHECKING:
    from seed_rl.common.learner.job import TrainingJob

_OP_MARKS = re.compile(r"\{\{.*?\}\} | \[Op:\w+\]$")  # TensorFlow adds these to messages.


@contextlib.contextmanager
def serving(job: TrainingJob, inference: CentralInference) -> Iterator[grpc.Server]:
    """Serves inference within the context.

    Args:
      job: where to serve, and how.
      inference: called by actors.

    Raises:
      UserError: the address is in use or not allowed.
    """
    run, config = job.run, job.config
    options = grpc.ServerOptions(
        max_batch_size=config.max_inference_batch(run),
        batch_timeout_ms=config.inference_timeout_ms,
        token=run.auth_token(),
        tls_certificate=run.tls_certificate,
        tls_key=run.tls_key,
        insecure=run.insecure,
    )
    server = grpc.Server([run.server_address], options)
    server.bind(inference.functions, isolate_errors=True, op_threads=config.inference_threads)
    server.bind(EnvClaims(inference.store.silence).function())
    if risk := run.risk():
        logging.warning("%s", risk)
    elif not options.token and addresses.is_public(run.server_address):
        logging.warning(
            "Any user of this machine can take part in this run at %s. To prevent that, give "
            "learner and actors the same --auth_token_file, or use unix:/path.",
            run.server_address,
        )
    environment = {**job.environment, **environment_agreement.counts(run)}
    status = {
        ENVIRONMENT: environment_agreement.describe(environment),
        ACTION_SPACE: spaces.describe(job.action_space),
    }
    server.set_status(status)
    try:
        server.start()
    except (tf.errors.UnavailableError, tf.errors.InvalidArgumentError) as error:
        raise UserError(
            f"Cannot serve at --server_address={run.server_address}: "
            f"{_OP_MARKS.sub('', error.message)}."
        ) from error
    logging.info("Serving inference at %s.", run.server_address)
    try:
        yield server
    finally:
        server.shutdown()
