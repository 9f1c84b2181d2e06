"""What the learners of one run tell each other, apart from their gradients.

They are processes, usually on different hosts, under `tf.distribute.MultiWorkerMirroredStrategy`.
TensorFlow's coordination service, in the first of them, notices those that are silent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2
from tensorflow.python.eager import context as eager_context

from seed_rl.common.errors import LostLearnerError, UserError
from seed_rl.common.learner.meeting import meet
from seed_rl.common.system.stop_signal import SIGNALS

SILENCE_S = 60
"""If a learner sends no heartbeat for longer (a hung or lost host), all of them end.

Heartbeats are sent twice in that time, so the others end 30 to 60 s after the last sign of life.
"""
_START_S = 300  # All must have started within this time: a run's nodes come up one by one.
_CONNECT_S = 60  # Then TensorFlow connects them.

_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
    tf.errors.UnknownError,
    tf.errors.CancelledError,
    tf.errors.FailedPreconditionError,
)


def make_strategy(
    addresses: Sequence[str], index: int
) -> tf.distribute.MultiWorkerMirroredStrategy:
    """Waits for all learners and connects them; call it before TensorFlow has run anything.

    Args:
      addresses: host:port of each learner, the same for all. TensorFlow listens at the port of
        every network interface, without token or encryption.
      index: of this learner.

    Raises:
      LostLearnerError: some did not start in time.
      UserError: the first learner cannot listen at its port.
    """
    cluster = tf.train.ClusterSpec({"worker": list(addresses)})
    # Not TF_CONFIG: an engine's own may be about other processes.
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, task_type="worker", task_id=index, rpc_layer="grpc"
    )
    # The strategy would do the same, but allow only 10 s of silence, which a loaded host may reach.
    eager_context.context().configure_coordination_service(
        service_type="standalone",
        service_leader="/job:worker/replica:0/task:0",
        cluster_register_timeout_in_ms=1000 * _CONNECT_S,
        heartbeat_timeout_in_ms=1000 * SILENCE_S,
        coordinated_jobs=[
            coordination_config_pb2.CoordinatedJob(name="worker", num_tasks=len(addresses))
        ],
    )
    tf.get_logger().setLevel(logging.WARNING)  # It would log each collective of a function.
    logging.info("Learner %d of %d waits for the others.", index, len(addresses))
    meet(addresses, index, _START_S)
    try:
        with _signals_later():
            return tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
    except tf.errors.OpError as error:
        raise LostLearnerError(
            f"Learner {index} cannot join the others at {', '.join(addresses)}. Start all again: "
            f"{str(error).splitlines()[0]}"
        ) from error


@contextlib.contextmanager
def _signals_later() -> Iterator[None]:
    """Delays SIGTERM and SIGINT until after the context, in which TensorFlow sets a handler of
    SIGTERM that does not end the process.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def others_alive() -> Iterator[None]:
    """Context of a collective.

    Raises:
      LostLearnerError: another learner is gone, or silent.
    """
    try:
        yield
    except _LOST as error:
        text = str(error)
        lost = re.search(r"(?:heartbeats\):|remote target)\s*/job:worker/\S*task:(\d+)", text)
        who = f"learner {lost[1]}" if lost else ""
        if "CoordinationService/" in text:  # A call to the service, which runs in learner 0.
            who = "learner 0"
        # Unless a learner is named, it may be another error, such as one of this learner's device.
        said = "" if who else f" ({text.splitlines()[0]})"
        raise LostLearnerError(
            f"Lost {who or 'another learner'}: it ended, or was silent for {SILENCE_S} s{said}. "
            "All learners end; start them again together, and they continue from the last "
            "checkpoint."
        ) from error


@contextlib.contextmanager
def failing_at_once() -> Iterator[None]:
    """Exits on errors within the context: TensorFlow's own exit may wait for a lost learner."""
    try:
        yield
    except Exception as error:
        if isinstance(error, UserError):
            print(f"error: {error}", file=sys.stderr, flush=True)
        else:
            logging.exception("This learner failed.")
        logging.shutdown()
        os._exit(error.exit_code if isinstance(error, UserError) else 1)


class Exchange:
    """Tells every learner the numbers of all."""

    def __init__(
        self, strategy: tf.distribute.MultiWorkerMirroredStrategy, index: int, learners: int
    ):
        """For learner `index` of `learners`."""
        self._index, self._learners = index, learners
        replicas = strategy.num_replicas_in_sync // learners

        def reduce(numbers: tf.Tensor) -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.identity(numbers))

        @tf.function(autograph=False)
        def gather(numbers: tf.Tensor) -> tf.Tensor:
            summed = strategy.run(reduce, args=(numbers,))
            return strategy.experimental_local_results(summed)[0] // replicas

        self._gather = gather

    def __call__(self, numbers: Sequence[int]) -> np.ndarray:
        """All learners call this together, and wait for each other without a time limit.

        Args:
          numbers: this learner's, [n].

        Returns:
          <int64>[learners, n].

        Raises:
          LostLearnerError: another learner is gone, or silent.
        """
        own = np.zeros([self._learners, len(numbers)], np.int64)
        own[self._index] = numbers
        with others_alive():
            return self._gather(tf.constant(own)).numpy()


def check_same(exchange: Exchange, options: Mapping[str, Any]) -> None:
    """Checks that all learners have the same options; all call this together.

    Raises:
      UserError: names those that differ.
      LostLearnerError: another learner is gone, or silent.
    """
    names = sorted(options)
    if _differ(exchange([_digest(names)])).any():
        raise UserError(
            "The learners are different programs or versions: start the same program on all hosts."
        )
    values = exchange([_digest(options[name]) for name in names])
    if different := [name for name, d in zip(names, _differ(values), strict=True) if d]:
        listed = ", ".join(f"--{name}" for name in different)
        raise UserError(f"The learners have different {listed}: start all with the same options.")


def _differ(rows: np.ndarray) -> np.ndarray:
    """Whether the learners' numbers differ, <bool>[n], from <int64>[learners, n]."""
    return (rows != rows[0]).any(axis=0)


def _digest(value: Any) -> int:
    text = json.dumps(value, sort_keys=True, default=str)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
