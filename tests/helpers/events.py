"""What is in TensorBoard's files."""

from __future__ import annotations

import pathlib

import numpy as np
import tensorflow as tf


def read_arrays(logdir: pathlib.Path) -> dict[str, list[tuple[int, np.ndarray]]]:
    """{name: [(step, array), ...]} of all event files, read the way TensorBoard does."""
    arrays: dict[str, list[tuple[int, np.ndarray]]] = {}
    for path in sorted(logdir.glob("events.out.tfevents.*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                arrays.setdefault(value.tag, []).append((event.step, tf.make_ndarray(value.tensor)))
    return arrays


def read_points(logdir: pathlib.Path) -> dict[str, list[tuple[int, float]]]:
    """{name: [(step, value), ...]} of scalars."""
    arrays = read_arrays(logdir)
    return {name: [(step, array.item()) for step, array in all_] for name, all_ in arrays.items()}


def read_scalars(logdir: pathlib.Path) -> dict[str, np.ndarray]:
    """The scalars among them: <float32>[points] by name."""
    points = {tag: [array for _, array in all_] for tag, all_ in read_arrays(logdir).items()}
    return {tag: np.stack(all_) for tag, all_ in points.items() if all_[0].dtype == np.float32}
