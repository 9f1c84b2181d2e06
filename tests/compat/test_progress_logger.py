"""Metrics that existing losses log while they are computed."""

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.compat.progress_logger import ProgressLogger
from tests.helpers.events import read_points


@pytest.mark.parametrize("in_graph", [False, True])
def test_progress_logger_writes_means(tmp_path, in_graph):
    logger = ProgressLogger(
        tf.summary.create_file_writer(str(tmp_path)), 1000, starting_step=tf.constant(50)
    )

    def step(value):
        session = logger.log_session()
        logger.log(session, "V/mean", [value, value + 2])
        session |= logger.log_session_from_dict({"loss": -value})
        logger.step_end(session, step_increment=10)

    if in_graph:
        step = tf.function(step)
    logger.start(lambda: tf.summary.scalar("extra", 7.0))
    for value in (1.0, 2.0, 3.0):
        step(tf.constant(value))
    logger.shutdown()
    scalars = read_points(tmp_path)
    assert scalars.pop("speed/steps_per_sec")[0][0] == 80
    assert scalars == {"V/mean": [(80, 3.0)], "loss": [(80, -2.0)], "extra": [(80, 7.0)]}


def test_a_name_of_two_kinds_of_step(tmp_path):
    """Guards values that are logged beside different others: their mean is over all steps."""
    logger = ProgressLogger(tf.summary.create_file_writer(str(tmp_path)), 1000)
    logger.start()
    for loss, other in ((1.0, "actor"), (5.0, "critic"), (6.0, "critic")):
        logger.step_end({"loss": tf.constant(loss), other: tf.constant(1.0)})
    logger.shutdown()
    assert read_points(tmp_path)["loss"] == [(3, 4.0)]


def test_progress_logger_loses_no_step_while_it_writes():
    # Steps are logged while the writing thread harvests as fast as it can.
    logger = ProgressLogger(None, initial_period=1e-4, period_factor=1.0)
    harvest = logger._harvest
    harvested = []

    def recorded():
        result = harvest()
        harvested.extend(result.values())
        return result

    logger._harvest = recorded

    @tf.function
    def step():
        logger.step_end({"one": tf.constant(1.0)})

    logger.start()
    steps = 0
    while steps < 500 or len(harvested) < 2:  # Or nothing would happen at the same time.
        step()
        steps += 1
    logger.shutdown()
    assert sum(value for value, _ in harvested) == steps
    assert all(value == count for value, count in harvested)


def test_progress_logger_recovers_from_nan(tmp_path):
    logger = ProgressLogger(tf.summary.create_file_writer(str(tmp_path)), 1000)
    logger.start()
    logger.step_end({"loss": tf.constant(float("nan"))})
    logger._write()
    logger.step_end({"loss": tf.constant(2.0)})
    logger.shutdown()
    (_, first), (_, second) = read_points(tmp_path)["loss"]
    assert np.isnan(first)
    assert second == 2.0
