"""Learners meet, and what is said of one that is lost."""

import contextlib
import socket
import threading

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.errors import LostLearnerError, UserError
from seed_rl.common.learner.meeting import meet
from seed_rl.common.learner.several_learners import check_same, others_alive
from seed_rl.launch.ports import free_port
from tests.helpers.waiting import wait_until


@pytest.mark.parametrize(
    "error, text, who",
    [
        (  # kill -9 of a worker.
            tf.errors.UnavailableError,
            "Collective ops is aborted by: Socket closed\nAdditional GRPC error information from "
            "remote target /job:worker/replica:0/task:1 while calling /tensorflow.WorkerService",
            "learner 1",
        ),
        (  # SIGSTOP.
            tf.errors.UnavailableError,
            "Collective ops is aborted by: Error reported from /job:worker/task:2: The following "
            "tasks are unhealthy (stopped sending heartbeats):\n/job:worker/replica:0/task:2\n",
            "learner 2",
        ),
        (  # SIGSTOP of the first.
            tf.errors.DeadlineExceededError,
            "Collective ops is aborted by: Deadline Exceeded\n\nRPC: "
            "/tensorflow.CoordinationService/Heartbeat\n",
            "learner 0",
        ),
        (
            tf.errors.InternalError,
            "Something else\n at all",
            r"another learner: .* \(Something else\)",
        ),
    ],
)
def test_the_lost_learner_is_named(error, text, who):
    """With TensorFlow 2.21's messages, as they were when learners were killed and stopped."""
    with pytest.raises(LostLearnerError, match=f"^Lost {who}.* start them again together"):
        with others_alive():
            raise error(None, None, text)


def test_other_errors_stay_what_they_are():
    with pytest.raises(tf.errors.InvalidArgumentError), others_alive():
        raise tf.errors.InvalidArgumentError(None, None, "Incompatible shapes")


def connected(host, port):
    with contextlib.suppress(ConnectionRefusedError):
        return socket.create_connection((host, port))


def test_learners_wait_until_all_are_here():
    """Guards against strangers at the port, and says who is missing."""
    addresses = [f"localhost:{free_port()}", "b.example:2", "c.example:3"]
    through = []

    def come(index):
        meet(addresses, index, patience_s=60)
        through.append(index)

    first = [threading.Thread(target=come, args=(i,)) for i in (1, 0)]
    for thread in first:
        thread.start()
    host, _, port = addresses[0].rpartition(":")
    stranger = wait_until(lambda: connected(host, int(port)))
    stranger.sendall(b"SEED RL learner 2 of 2\n")
    assert stranger.recv(64) == b""
    assert not through
    come(2)
    for thread in first:
        thread.join()
    assert sorted(through) == [0, 1, 2]


@pytest.mark.parametrize("index, missing", [(0, r"1 \(b:2\), 2 \(c:3\)"), (1, r"0 \(localhost:")])
def test_the_missing_learners_are_named(index, missing):
    with pytest.raises(LostLearnerError, match=f"^Learner {missing}.* did not connect within 1 s"):
        meet([f"localhost:{free_port()}", "b:2", "c:3"], index, patience_s=1)


def check_both(one, other):
    """`check_same` of two learners, the first of which raises what both would."""
    told = []
    with contextlib.suppress(UserError):
        check_same(lambda numbers: told.append(numbers) or np.array([numbers] * 2), other)
    others = iter(told)
    check_same(lambda numbers: np.array([numbers, next(others)]), one)


def test_learners_with_different_options_are_refused():
    """Guards collectives of different shapes or numbers, which would wait for ever."""
    options = {"batch_size": 8, "learning_rate": 0.1, "sizes": (64, 64), "kwargs": {"a": 1, "b": 2}}
    check_both(options, {**options, "sizes": [64, 64], "kwargs": {"b": 2, "a": 1}})
    with pytest.raises(
        UserError, match="different --batch_size, --kwargs: start all with the same"
    ):
        check_both(options, {**options, "batch_size": 16, "kwargs": {"a": 1}})
    with pytest.raises(UserError, match="different programs or versions"):
        check_both(options, {**options, "replay_ratio": 1})
