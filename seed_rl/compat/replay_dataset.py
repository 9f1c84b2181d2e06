"""Training batches from a replay that the program itself fills, for existing code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from seed_rl.common.config import options
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.replay_config import ReplayConfig
from seed_rl.common.errors import UserError
from seed_rl.common.nest import Nest
from seed_rl.compat.tensors import make_time_major

_WITHOUT_TIME = ("agent_state", "priority")


def get_replay_insertion_batch_size(per_replica: bool = False) -> int:
    """Unrolls inserted into the replay per training step: batch_size / replay_ratio.

    Args:
      per_replica: return the number for one replica of the current `tf.distribute.Strategy`.

    Raises:
      UserError: no --replay_ratio.
    """
    ratio = options.from_flags(ReplayConfig).replay_ratio
    if not ratio:
        raise UserError("create_dataset needs a --replay_ratio above 0.")
    replicas = tf.distribute.get_strategy().num_replicas_in_sync if per_replica else 1
    batch_size = options.from_flags(LearnerConfig).batch_size
    return max(1, int(batch_size / ratio / replicas))


def replay_dataset(
    unroll_queue: Any,
    replay_buffer: Any,
    strategy: tf.distribute.Strategy,
    batch_size: int,
    priority_exponent: float,
    priorities: Callable[[Any], tf.Tensor],
    finish: Callable[[tf.Tensor, tf.Tensor, Any], Nest],
) -> Any:
    """Training batches: each waits for new unrolls, inserts them into the replay, and samples it.

    Args:
      unroll_queue: `StructuredFIFOQueue` of an agent's unrolls.
      replay_buffer: `ReplayStore` of the same.
      strategy: training strategy.
      batch_size: unrolls sampled per replica.
      priority_exponent: unrolls are sampled in proportion to priority ** priority_exponent.
      priorities: maps new unrolls, environment-major, to their priorities <float32>[n].
      finish: `finish(indices, weights, unrolls)` returns a batch; the unrolls are time-major.

    Returns:
      A distributed dataset of what `finish` returns.
    """
    with strategy.scope():
        num_inserted = get_replay_insertion_batch_size(per_replica=True)

    def draw(_: tf.Tensor) -> Nest:
        unrolls = unroll_queue.dequeue_many(num_inserted)
        replay_buffer.insert(unrolls, priorities(unrolls))
        indices, weights, sampled = replay_buffer.sample(batch_size, priority_exponent)
        steps = {
            name: make_time_major(getattr(sampled, name))
            for name in sampled._fields
            if name not in _WITHOUT_TIME
        }
        return finish(indices, weights, sampled._replace(**steps))

    # Sampling must follow the insertion that makes it possible: no calls in parallel.
    return strategy.distribute_datasets_from_function(
        lambda _: tf.data.Dataset.from_tensors(0).repeat().map(draw).prefetch(1)
    )
