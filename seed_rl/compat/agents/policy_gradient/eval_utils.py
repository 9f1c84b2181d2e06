"""Statistics of evaluation episodes, for programs that evaluate their agents themselves.

The learner reports the episodes of its evaluation environments without it.
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

__all__ = ["EpisodeInfo", "Evaluator"]


class EpisodeInfo(NamedTuple):
    """A finished episode, or several: then each field is an array of [episodes].

    Attributes:
      eval_name: of the evaluation it belongs to, a string (or bytes, or a tensor of them).
      episode_num_frames: its length in environment frames.
      episode_returns: sum of its rewards.
      episode_raw_returns: sum of its unshaped rewards.
    """

    eval_name: Any
    episode_num_frames: Any
    episode_returns: Any
    episode_raw_returns: Any


class Evaluator:
    """Collects episodes and reports their means, for each evaluation by its name."""

    def __init__(self, print_episode_summaries: bool, log_episode_frequency: int = 1):
        """Starts without episodes.

        Args:
          print_episode_summaries: whether to log single episodes.
          log_episode_frequency: of these, every how many of an evaluation.
        """
        self._print = print_episode_summaries
        self._frequency = log_episode_frequency
        self.reset()

    def reset(self) -> None:
        """Forgets all episodes."""
        self._episodes: dict[str, list[tuple[float, ...]]] = collections.defaultdict(list)

    def add(self, data: EpisodeInfo) -> None:
        """Takes one episode."""
        name = _text(data[0])
        numbers = tuple(float(number) for number in data[1:])
        episodes = self._episodes[name]
        episodes.append(numbers)
        if self._print and len(episodes) % self._frequency == 0:
            frames, returns, raw_returns = numbers
            logging.info(
                "%s: episode %d of %d frames, return %g, raw return %g.",
                name,
                len(episodes),
                frames,
                returns,
                raw_returns,
            )

    def add_many(self, data: EpisodeInfo) -> None:
        """Takes several episodes, whose `EpisodeInfo` holds arrays."""
        columns: Iterable[Any] = (np.asarray(column) for column in data)
        for row in zip(*columns, strict=True):
            self.add(EpisodeInfo(*row))

    def process(self, write_tf_summaries: bool = True) -> Mapping[str, Mapping[str, float]]:
        """Reports the means of the episodes taken since `reset`.

        Args:
          write_tf_summaries: whether to write them as scalars, with the default writer and step of
            `tf.summary`.

        Returns:
          By name of the evaluation, means by field of `EpisodeInfo`.
        """
        fields = EpisodeInfo._fields[1:]
        means = {
            name: dict(zip(fields, map(float, np.mean(episodes, axis=0)), strict=True))
            for name, episodes in self._episodes.items()
        }
        for name, values in means.items():
            logging.info("%s: mean return %g.", name, values["episode_returns"])
            if write_tf_summaries:
                for field, value in values.items():
                    tf.summary.scalar(f"{name}/{field}", value)
        return means


def _text(name: Any) -> str:
    value = name.numpy() if hasattr(name, "numpy") else name
    return value.decode() if isinstance(value, bytes) else str(value)
