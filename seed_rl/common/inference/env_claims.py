"""Environment ids for actors that come and go: they ask for some instead of having a --task."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

LEASE_S = 60.0


class EnvClaims:
    """Keeps track of which ids are free.

    Ids of actors with a --task count as taken as soon as these call. If such an actor comes later,
    it takes over its ids, and the other actor asks again.
    """

    def __init__(
        self,
        silence: Callable[[], np.ndarray],
        lease_s: float = LEASE_S,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Starts with all ids free.

        Args:
          silence: returns <float32>[num_envs], the seconds since each environment's last call, NaN
            before its first (`InferenceStore.silence`).
          lease_s: ids whose environments have been silent for longer are handed out again.
          clock: returns seconds.
        """
        self._silence = silence
        self._lease_s = lease_s
        self._clock = clock
        self._lock = threading.Lock()
        self._claimed_at = np.full(len(silence()), -np.inf)  # Guarded by the lock.

    def claim(self, count: int | np.ndarray) -> np.ndarray:
        """Hands out the lowest free ids.

        Args:
          count: of environments.

        Returns:
          Their ids <int32>[count]; <int32>[0] if fewer are free.
        """
        with self._lock:
            silence = np.nan_to_num(self._silence(), nan=np.inf)
            silent_since_claimed = np.minimum(silence, self._clock() - self._claimed_at)
            free = np.flatnonzero(silent_since_claimed > self._lease_s)
            if not 0 < count <= len(free):
                return np.zeros(0, np.int32)
            claimed = free[: int(count)]
            self._claimed_at[claimed] = self._clock()
            return claimed.astype(np.int32)

    def function(self) -> Any:
        """`claim` as a `tf.function` for `grpc.Server.bind`: count <int32>[] -> <int32>[None]."""

        @tf.function(input_signature=[tf.TensorSpec([], tf.int32, "count")], autograph=False)
        def claim(count: tf.Tensor) -> tf.Tensor:
            return tf.ensure_shape(tf.numpy_function(self.claim, [count], tf.int32), [None])

        return claim
