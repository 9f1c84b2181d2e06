"""What is said of a learner that is lost."""

import pytest
import tensorflow as tf

from seed_rl.common.errors import LostLearnerError
from seed_rl.common.learner.several_learners import others_alive


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
        (tf.errors.InternalError, "Something else", "another learner"),
    ],
)
def test_the_lost_learner_is_named(error, text, who):
    """With TensorFlow 2.21's messages, as they were when learners were killed and stopped."""
    with pytest.raises(LostLearnerError, match=f"^Lost {who}: .* start them again together"):
        with others_alive():
            raise error(None, None, text)


def test_other_errors_stay_what_they_are():
    with pytest.raises(tf.errors.InvalidArgumentError), others_alive():
        raise tf.errors.InvalidArgumentError(None, None, "Incompatible shapes")
