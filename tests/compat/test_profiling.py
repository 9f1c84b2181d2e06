import tensorflow as tf

from seed_rl.common import profiling


def test_profiling_aggregator():
    aggregator = profiling.Aggregator()
    assert aggregator.average() == 0
    aggregator.add(1)
    aggregator.add(4)
    assert aggregator.average() == 2.5
    aggregator.reset()
    assert aggregator.average() == 0


def test_exporting_timer_writes_a_mean_per_window(tmp_path):
    timer = profiling.ExportingTimer("step_ms", 2)
    with tf.summary.create_file_writer(str(tmp_path)).as_default():
        for _ in range(5):
            with timer:
                pass
    (path,) = tmp_path.iterdir()
    events = [
        (event.step, value.tag, tf.make_ndarray(value.tensor).item())
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
    ]
    assert [event[:2] for event in events] == [(2, "step_ms"), (4, "step_ms")]
    assert all(event[2] > 0 for event in events)
