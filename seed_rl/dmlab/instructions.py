"""Instructions as arrays of hashed words (no TensorFlow here)."""

from __future__ import annotations

import re
import zlib

import numpy as np

NUM_BUCKETS = 1000
"""Number of hash buckets for words."""


def words(text: str) -> list[str]:
    """The words of an instruction, in lower case and without punctuation."""
    return re.findall(r"\w+", text.lower())


def encode(text: str, length: int) -> np.ndarray:
    """Hashes the words of an instruction (Espeholt et al. 2018, fig. 3).

    Args:
      text: the instruction.
      length: number of words to keep.

    Returns:
      <int32>[length]: 1 to `NUM_BUCKETS` per word, the same in all processes, then zeros.
    """
    encoded = np.zeros(length, np.int32)
    for i, word in enumerate(words(text)[:length]):
        encoded[i] = 1 + zlib.crc32(word.encode()) % NUM_BUCKETS
    return encoded
