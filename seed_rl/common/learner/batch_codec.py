"""Passes batches of any structure through tf.data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from seed_rl.common.nest import Nest


class BatchCodec:
    """Encodes batches for the training devices, and keeps their structure through tf.data.

    On its own, tf.data would turn lists into tensors.

    Args:
      encode: applied to each batch.
      decode: undoes it.
    """

    def __init__(
        self,
        encode: Callable[[Nest], Nest] = lambda batch: batch,
        decode: Callable[[Nest], Nest] = lambda batch: batch,
    ):
        self._encode = encode
        self._decode = decode
        self._structure: Nest = None

    def encode(self, batch: Nest) -> tuple[Any, ...]:
        """Encodes and flattens a batch; called in the dataset."""
        encoded = self._encode(batch)
        self._structure = tf.nest.map_structure(lambda _: 0, encoded)
        return tuple(tf.nest.flatten(encoded))

    def decode(self, batch: tuple[Any, ...]) -> Nest:
        """The batch as it was before `encode`, which must have been traced."""
        assert self._structure is not None
        return self._decode(tf.nest.pack_sequence_as(self._structure, batch))
