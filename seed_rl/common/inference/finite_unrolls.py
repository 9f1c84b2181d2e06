"""Keeps unrolls that hold NaN, infinity or numbers beyond `LARGEST` out of training.

Unrolls are checked as they leave the store: each only once, in large batches, while the id of its
environment is still known, and without delaying calls of actors. Integer fields, such as game
frames, need no check.
"""

from __future__ import annotations

import logging
import math
import threading
import time

import numpy as np
import tensorflow as tf

from seed_rl.common.nest import Nest
from seed_rl.common.types import LARGEST, EnvOutput, Step, StoredUnrolls

_WARN_EVERY_S = 60.0
_MOST_NAMED = 10


class NonFiniteUnrolls:
    """Logs which environments reported values that are not finite.

    Attributes:
      count: number of such unrolls so far.
    """

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()
        self._last: dict[int, float] = {}  # By environment, the time of its latest such unroll.
        self._warned = -_WARN_EVERY_S

    def note(self, env_ids: np.ndarray) -> None:
        """Counts n unrolls of the environments <int32>[n] and logs a rate-limited warning."""
        now = time.monotonic()
        with self._lock:
            self.count += len(env_ids)
            self._last.update((int(env_id), now) for env_id in env_ids)
            warn = now - self._warned >= _WARN_EVERY_S
            if warn:
                self._warned = now
        if warn:
            logging.warning("%s. They are left out of training.", self.warning())

    def warning(self) -> str | None:
        """A message about the last minute's unrolls; None if there were none."""
        now = time.monotonic()
        with self._lock:
            ids = sorted(i for i, when in self._last.items() if now - when < _WARN_EVERY_S)
            if not ids:
                return None
            named = ", ".join(map(str, ids[:_MOST_NAMED])) + (", ..." * (len(ids) > _MOST_NAMED))
            return (
                f"NaN, infinity or numbers beyond ±{LARGEST:.0e} in observations, rewards or "
                f"recurrent states of environments {named}: {self.count:,} unrolls so far"
            )


def finite(agent_state: Nest, env_outputs: EnvOutput) -> tf.Tensor:
    """Which unrolls of a batch hold only finite numbers, of at most `LARGEST`.

    The network's outputs are not checked, as they may be infinite: logits of forbidden actions are.

    Args:
      agent_state: nest of [batch, ...], before the first step. An earlier NaN persists in it until
        the episode ends.
      env_outputs: what environments report, a nest of [time, batch, ...].

    Returns:
      <bool>[batch].
    """
    good = []
    for batch_axis, part in ((1, env_outputs), (0, agent_state)):
        for array in tf.nest.flatten(part):
            if tf.as_dtype(array.dtype).is_floating:  # Images need no copy to a tensor.
                tensor = tf.convert_to_tensor(array)
                others = [axis for axis in range(tensor.shape.rank) if axis != batch_axis]
                good.append(tf.reduce_all(_bounded(tensor), axis=others))
    return tf.reduce_all(good, axis=0)


def _bounded(tensor: tf.Tensor) -> tf.Tensor:
    """Which numbers are finite and at most `LARGEST`."""
    # False for NaN. In half precision, `LARGEST` would become infinity.
    bound = tf.constant(min(LARGEST, float(tensor.dtype.max)), tensor.dtype)
    return tf.abs(tensor) <= bound


def _or_nan(tensor: tf.Tensor) -> tf.Tensor:
    if not tensor.dtype.is_floating:
        return tensor
    return tf.where(_bounded(tensor), tensor, tf.constant(math.nan, tensor.dtype))


def without_effect(unrolls: StoredUnrolls, good: tf.Tensor) -> StoredUnrolls:
    """The batch, with the unrolls that are not `good` <bool>[batch] made neutral.

    All their steps are `abandoned`, so losses ignore them. Their other values are copied from the
    first good unroll: a NaN would remain in the gradients even when multiplied by 0, and zeros may
    be an invalid observation (one that allows no action, or by whose size a network divides).
    """
    stand_in = tf.argmax(good, output_type=tf.int32)
    rows = tf.where(good, tf.range(tf.size(good)), stand_in)
    state = tf.nest.map_structure(lambda t: tf.gather(t, rows), unrolls.agent_state)
    steps: Step = tf.nest.map_structure(lambda t: tf.gather(t, rows, axis=1), unrolls.steps)
    reported = steps.env_outputs
    reported = reported._replace(done=reported.done | ~good, abandoned=reported.abandoned | ~good)
    return unrolls._replace(agent_state=state, steps=steps._replace(env_outputs=reported))


def _spoiled(unrolls: StoredUnrolls) -> StoredUnrolls:
    """The batch, with NaN for numbers beyond `LARGEST`, which normalizers would accept."""
    steps = unrolls.steps
    state, reported = tf.nest.map_structure(_or_nan, (unrolls.agent_state, steps.env_outputs))
    return unrolls._replace(agent_state=state, steps=steps._replace(env_outputs=reported))


def leave_out(unrolls: StoredUnrolls, log: NonFiniteUnrolls) -> StoredUnrolls:
    """Notes unrolls that are not finite in `log` and removes their effect on training.

    In a batch without any good unroll, numbers beyond `LARGEST` become NaN and all others stay: the
    gradient is then not finite, and the training step is skipped. Runs in a `tf.function` of this
    process.
    """
    good = finite(unrolls.agent_state, unrolls.steps.env_outputs)

    def replaced() -> list[tf.Tensor]:
        bad = tf.boolean_mask(unrolls.env_ids, ~good)
        tf.numpy_function(log.note, [bad], [])
        some = tf.reduce_any(good)
        return tf.nest.flatten(
            tf.cond(some, lambda: without_effect(unrolls, good), lambda: _spoiled(unrolls))
        )

    tensors = tf.cond(tf.reduce_all(good), lambda: tf.nest.flatten(unrolls), replaced)
    return tf.nest.pack_sequence_as(unrolls, tensors)
