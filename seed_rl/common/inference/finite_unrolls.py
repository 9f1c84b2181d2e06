"""Unrolls that hold NaN or infinity: found, reported, and kept out of training.

Where unrolls leave the store is the place to look: each is looked at once, in large pieces, with
the id of its environment still known, and off the path of the calls that actors wait for. Integer
fields, such as frames of games, need no look at all.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from seed_rl.common.inference.inference_store import StoredUnrolls
    from seed_rl.common.types import Step

_WARN_EVERY_S = 60.0
_MOST_NAMED = 10


class NonFiniteUnrolls:
    """Remembers which environments gave unrolls that are not finite, and warns of them.

    Attributes:
      count: unrolls so far.
    """

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()
        self._last: dict[int, float] = {}  # When each environment gave one.
        self._warned = -_WARN_EVERY_S

    def note(self, env_ids: np.ndarray) -> None:
        """Takes in the environments <int32>[n] of n unrolls; warns, though not too often."""
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
        """What to tell people of the last minute; None if there was none."""
        now = time.monotonic()
        with self._lock:
            ids = sorted(i for i, when in self._last.items() if now - when < _WARN_EVERY_S)
            if not ids:
                return None
            named = ", ".join(map(str, ids[:_MOST_NAMED])) + (", ..." * (len(ids) > _MOST_NAMED))
            return (
                f"NaN or infinity in observations, rewards or recurrent states of environments "
                f"{named}: {self.count:,} unrolls so far"
            )


def finite(unrolls: StoredUnrolls) -> tf.Tensor:
    """Which of a batch of unrolls hold only finite numbers, <bool>[batch].

    Looks at what environments report and at the recurrent state before the first step, in which an
    earlier NaN stays until the episode ends. What the network has put out may be infinite: logits
    of forbidden actions are.
    """
    good = tf.ones_like(unrolls.env_ids, tf.bool)
    reported = unrolls.steps.env_outputs
    for batch_axis, part in (
        (1, (reported.reward, reported.observation)),
        (0, unrolls.agent_state),
    ):
        for tensor in tf.nest.flatten(part):
            if tensor.dtype.is_floating:
                others = [axis for axis in range(tensor.shape.rank) if axis != batch_axis]
                good &= tf.reduce_all(tf.math.is_finite(tensor), axis=others)
    return good


def without_effect(unrolls: StoredUnrolls, good: tf.Tensor) -> StoredUnrolls:
    """The batch, in which unrolls that are not `good` <bool>[batch] hold no transition.

    All their steps are `abandoned`, so that no loss counts them. Everything else in them is that of
    the first good one: gradients would be NaN even where they are multiplied by 0, and zeros might
    be no observation (one that allows no action at all, or by whose size a network divides).
    """
    stand_in = tf.argmax(good, output_type=tf.int32)
    rows = tf.where(good, tf.range(tf.size(good)), stand_in)
    state = tf.nest.map_structure(lambda t: tf.gather(t, rows), unrolls.agent_state)
    steps: Step = tf.nest.map_structure(lambda t: tf.gather(t, rows, axis=1), unrolls.steps)
    reported = steps.env_outputs
    reported = reported._replace(done=reported.done | ~good, abandoned=reported.abandoned | ~good)
    return unrolls._replace(agent_state=state, steps=steps._replace(env_outputs=reported))


def leave_out(unrolls: StoredUnrolls, log: NonFiniteUnrolls) -> StoredUnrolls:
    """Notes those that are not finite in `log`, and takes their effect from training.

    A batch in which no unroll is finite stays as it is: its gradient is not finite either, so that
    the training step counts as skipped. Runs in a `tf.function` of this process.
    """
    good = finite(unrolls)

    def mended() -> list[tf.Tensor]:
        bad = tf.boolean_mask(unrolls.env_ids, ~good)
        tf.numpy_function(log.note, [bad], [])
        return tf.nest.flatten(without_effect(unrolls, good | ~tf.reduce_any(good)))

    tensors = tf.cond(tf.reduce_all(good), lambda: tf.nest.flatten(unrolls), mended)
    return tf.nest.pack_sequence_as(unrolls, tensors)
