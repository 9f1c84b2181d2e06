import tensorflow as tf

from seed_rl.common import profiling
from tests.helpers.events import read_arrays


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
    ((tag, events),) = read_arrays(tmp_path).items()
    assert tag == "step_ms" and [step for step, _ in events] == [2, 4]
    assert all(mean > 0 for _, mean in events)
