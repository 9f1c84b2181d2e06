"""Environment ids for actors that come and go: they ask for some instead of having a --task."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

LEASE_S = 60.0
GRACE_S = 10.0


class EnvClaims:
    """Keeps track of which ids are free.

    Ids of actors with a --task count as taken as soon as these call. If such an actor comes later,
    it takes over its ids, and the other actor asks again.
    """

    def __init__(
        self,
        silence: Callable[[], np.ndarray],
        lease_s: float = LEASE_S,
        grace_s: float = GRACE_S,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Starts with all ids free.

        Args:
          silence: returns <float32>[num_envs], the seconds since each environment's last call, NaN
            before its first (`InferenceStore.silence`).
          lease_s: ids whose environments have been silent for longer are handed out again ...
          grace_s: ... if they still are, this long after a claim found them so. After a stall of
            the learner all have been silent, and need time to call again.
          clock: returns seconds.
        """
        self._silence = silence
        self._lease_s = lease_s
        self._grace_s = grace_s
        self._clock = clock
        self._lock = threading.Lock()
        # Guarded by the lock. When a claim found the id silent for longer than the lease; or inf.
        self._found_at = np.full(len(silence()), np.inf)
        self._claimed_at = np.full(len(silence()), -np.inf)  # Guarded by the lock.

    def claim(self, count: int | np.ndarray) -> np.ndarray:
        """Hands out free ids: the lowest that nobody ever used, then those unused for longest.

        Args:
          count: of environments.

        Returns:
          Their ids <int32>[count], sorted; <int32>[0] if fewer are free.
        """
        with self._lock:
            now = self._clock()
            silence = self._silence()
            never = np.isnan(silence)
            silence = np.where(never, np.inf, silence)
            unused = np.minimum(silence, now - self._claimed_at)
            lapsed = unused > self._lease_s
            self._found_at[~lapsed | (silence < now - self._found_at)] = np.inf  # Called since.
            self._found_at[lapsed] = np.minimum(self._found_at[lapsed], now)
            free = np.flatnonzero(lapsed & (never | (now - self._found_at >= self._grace_s)))
            if not 0 < count <= len(free):
                return np.zeros(0, np.int32)
            longest_first = free[np.argsort(-unused[free], kind="stable")]
            claimed = np.sort(longest_first[: int(count)])
            self._claimed_at[claimed] = now
            return claimed.astype(np.int32)

    def function(self) -> Any:
        """`claim` as a `tf.function` for `grpc.Server.bind`: count <int32>[] -> <int32>[None]."""

        @tf.function(input_signature=[tf.TensorSpec([], tf.int32, "count")], autograph=False)
        def claim(count: tf.Tensor) -> tf.Tensor:
            return tf.ensure_shape(tf.numpy_function(self.claim, [count], tf.int32), [None])

        return claim
