"""Means of training metrics, episode statistics and TensorBoard files."""

import logging
import resource

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.inference.inference_store import EpisodeStats
from seed_rl.common.monitoring.metrics import EpisodeStatistics, MeanMetrics, SummaryWriter
from seed_rl.common.run_files import returns_log
from tests.helpers.events import read_arrays, read_points


def episodes(*rows, ended_at=0):
    """EpisodeStats of (steps, return, raw return, env id[, success]) rows, a step after another."""
    rows = [(*row, np.nan)[:5] for row in rows]
    steps, returns, raw_returns, env_ids, successes = np.array(rows, np.float32).reshape(-1, 5).T
    ids, ends = env_ids.astype(np.int32), ended_at + np.arange(len(rows))
    return EpisodeStats(ids, steps.astype(np.int64), returns, raw_returns, ends, successes)


def test_means_are_over_the_steps_since_the_last_harvest():
    metrics = MeanMetrics()
    assert metrics.harvest() == {}
    for value in (1.0, 2.0, 6.0):
        metrics.add({"loss": tf.constant(value), "norm": np.float32(2 * value)})
    metrics.add({"loss": 3.0})  # Not every step need have every metric.
    assert metrics.harvest() == {"loss": 3.0, "norm": 6.0}
    metrics.add({"loss": 5})
    assert metrics.harvest() == {"loss": 5.0}


def test_long_intervals_hold_few_tensors():
    metrics = MeanMetrics()
    for step in range(2500):
        metrics.add({"loss": float(step)})
    assert max(len(held) for held in metrics._held.values()) < 1000
    assert metrics.harvest() == {"loss": 1249.5}


def test_scalars_and_histograms_reach_tensorboard_at_their_frames(tmp_path):
    writer = SummaryWriter(tmp_path)
    writer.write(1000, {"loss": 0.5, "speed/frames_per_s": 10})
    writer.write(2000, {"loss": tf.constant(0.25), "priorities": np.float32([0, 1, 1, 10])})
    writer.close()
    (path,) = tmp_path.iterdir()  # Studies read the start of a learner from the name.
    assert abs(int(path.name.split(".")[3]) - path.stat().st_mtime) < 3600
    found = read_arrays(tmp_path)
    ((step, buckets),) = found.pop("priorities")  # Rows of (left, right, count).
    assert step == 2000 and buckets[:, 2].sum() == 4
    assert (buckets[0, 0], buckets[-1, 1]) == (0.0, 10.0)
    assert found == {"loss": [(1000, 0.5), (2000, 0.25)], "speed/frames_per_s": [(1000, 10.0)]}


def test_clips_are_images_of_tensorboard(tmp_path):
    writer = SummaryWriter(tmp_path)
    gif = b"GIF89a\x03\x00\x02\x01..."
    writer.clip(7, gif)
    writer.close()
    ((step, image),) = read_arrays(tmp_path)["clips/agent"]
    assert step == 7 and image.tolist() == [b"3", b"258", gif]


def test_options_reach_tensorboard_before_any_scalar(tmp_path, caplog):
    """Guards the first thing every run writes: without it, none of its curves were written."""
    writer = SummaryWriter(tmp_path)
    writer.describe(500, {"program": "seed_rl.gym.vtrace_main", "learning_rate": 0.5})
    writer.write(1000, {"loss": 0.5})
    writer.close()
    names = read_arrays(tmp_path)
    assert b"| learning_rate | 0.5 |" in names["options"][0][1].item()
    assert names.pop("loss") == [(1000, 0.5)]
    assert {step for values in names.values() for step, _ in values} == {500}
    assert not caplog.records


def test_a_defect_in_one_write_is_logged_and_the_next_is_done(tmp_path, caplog):
    """Guards against a thread that ends: its queue fills up, and the learner never ends."""
    writer = SummaryWriter(tmp_path)
    writer.describe(0, {"rate": 1, 2: "a name that is no text"})
    writer.write(1000, {"loss": 0.5})
    writer.close()
    assert read_points(tmp_path) == {"loss": [(1000, 0.5)]}
    assert [bool(r.exc_info) for r in caplog.records] == [True]


def test_a_writer_that_fails_warns_once_and_never_raises(tmp_path, caplog):
    """Guards training and its curves on a disk that is full for a while."""
    writer = SummaryWriter(tmp_path / "logs")
    write = writer._write

    def write_from_3_on(frames, arrays):
        if frames < 3:
            raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")
        write(frames, arrays)

    writer._write = write_from_3_on
    for step in range(4):
        writer.write(step, {"loss": 1.0})
    writer.close()
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert [r.getMessage() for r in warnings] == [
        "Cannot write for TensorBoard (No space left on device). Training continues."
    ]
    assert read_points(tmp_path / "logs") == {"loss": [(3, 1.0)]}


def test_points_after_half_a_record_are_read(tmp_path):
    """Guards curves after a full disk: TensorBoard reads nothing behind half a record."""
    writer = SummaryWriter(tmp_path)

    def write(step):
        writer._guarded(lambda: writer._write(step, {"loss": np.float64(1.0)}))

    write(1)
    (file,) = tmp_path.iterdir()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 10, before[1]))
        write(2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    write(3)
    writer.close()
    file.unlink()
    assert read_points(tmp_path) == {"loss": [(3, 1.0)]}


def test_successes_are_counted_where_they_are_known(tmp_path):
    statistics = EpisodeStatistics(num_training_envs=2, num_eval_envs=1, logdir=tmp_path)
    known = [(1, 0, 0, 0, 1), (1, 0, 0, 1, 0), (1, 0, 0, 2, 1)]
    statistics.add(episodes(*known, (1, 0, 0, 0)))
    curves = statistics.harvest()
    assert (curves["charts/success"], curves["charts/evaluation_success"]) == (0.5, 1.0)
    statistics.add(episodes((1, 0, 0, 0)))
    assert not [name for name in statistics.harvest() if "success" in name]
    statistics.close()
    rows = returns_log.read(tmp_path / returns_log.FILE_NAME)
    assert [row.success for row in rows] == [1, 0, 1, None, None]


def test_training_and_evaluation_episodes_are_kept_apart(tmp_path):
    """Guards, too, the rows after the last checkpoint, which a resumed run must drop: they count
    the frames of both learners.
    """
    statistics = EpisodeStatistics(
        3, num_action_repeats=4, logdir=tmp_path, start_frames=1000, num_eval_envs=1, learners=2
    )
    assert statistics.recent_return is None
    statistics.add(episodes())
    unknown = ((9, np.nan, 1, 0), (9, 1, np.nan, 1), (9, 1, np.inf, 3))
    rows = ((100, 1, 10, 0), (200, 3, 30, 2), (50, 7, 70, 3))
    statistics.add(episodes(*rows, *unknown, ended_at=350))
    assert statistics.count == 2
    assert statistics.recent_return == 2
    assert statistics.harvest() == {
        "charts/episode_return": 2,
        "charts/score": 20,
        "episodes/frames": 600,
        "episodes/recent_return": 2,
        "episodes/count": 2,
        "charts/evaluation_return": 7,
        "charts/evaluation_score": 70,
        "evaluation/frames": 200,
        "evaluation/recent_return": 7,
        "evaluation/count": 1,
    }
    assert statistics.harvest() == {}
    statistics.close()
    rows = returns_log.read(tmp_path / "returns.csv")
    found = [(r.frames, r.episode_frames, r.episode_return, r.env_id, r.evaluation) for r in rows]
    assert found == [
        (3800, 400, 1, 0, False),
        (3808, 800, 3, 2, False),
        (3816, 200, 7, 3, True),
    ]


def test_scores_are_shown_only_where_they_differ_from_returns():
    """Guards against a curve that repeats another, and one that comes and goes."""
    statistics = EpisodeStatistics(num_training_envs=1)
    statistics.add(episodes((1, 2, 2, 0)))
    assert "charts/score" not in statistics.harvest()
    statistics.add(episodes((1, 2, 3, 0)))
    assert statistics.harvest()["charts/score"] == 3
    statistics.add(episodes((1, 4, 4, 0)))
    assert statistics.harvest()["charts/score"] == 4


def test_recent_means_forget_old_episodes():
    """Guards means that reach back over a third of the run, and those of one or two episodes."""
    statistics = EpisodeStatistics(num_training_envs=1, window=12)
    for value in range(1, 101):
        statistics.add(episodes((1, value, value, 0), ended_at=value * 10))
    assert statistics.recent_return == np.mean(range(91, 101)), "5 % are six: the last 10"
    assert statistics.count == 100
    for value in range(101, 401):
        statistics.add(episodes((1, value, value, 0), ended_at=value * 10))
    assert statistics.recent_return == np.mean(range(389, 401)), "5 % are 21: the last 12"


def test_an_agent_is_judged_by_equally_many_episodes_of_each_environment():
    """Guards a run's end and its best agent, where short episodes are better or worse than others.

    Environments that begin together first end their shortest episodes.
    """
    statistics = EpisodeStatistics(num_training_envs=200, num_eval_envs=4)
    for _ in range(3):
        statistics.add(episodes(*[(20, 1, 1, env) for env in range(199)]))
        assert statistics.judged_return(evaluation=False) is None
    statistics.add(episodes((60, 0, 0, 199)))
    assert statistics.judged_return(evaluation=False) == pytest.approx(199 / 200)
    for value in range(5):
        assert statistics.judged_return(evaluation=True) is None
        statistics.add(episodes(*[(20, value, value, env) for env in range(200, 204)]))
    assert statistics.judged_return(evaluation=True) == 2
    statistics.add(episodes((20, 20, 20, 203)))
    assert statistics.judged_return(evaluation=True) == 3, "the newest of 203 replaces its oldest"


def test_an_environment_that_is_gone_does_not_count():
    """Guards a run with a dead actor, which would never be judged."""
    statistics = EpisodeStatistics(num_training_envs=2)
    statistics.add(episodes(*[(20, 0, 0, 1)] * 50))
    statistics.add(episodes(*[(20, 1, 1, 0)] * 1000))
    assert statistics.judged_return(evaluation=False) == 0.5
    statistics.add(episodes((20, 1, 1, 0)))
    assert statistics.judged_return(evaluation=False) == 1
    statistics.add(episodes((20, 0, 0, 1)))
    assert statistics.judged_return(evaluation=False) == 0.5


def test_a_returns_file_that_cannot_be_written_is_warned_of_once(tmp_path, caplog):
    (tmp_path / "returns.csv").mkdir()
    statistics = EpisodeStatistics(1, logdir=tmp_path)
    for _ in range(3):
        statistics.add(episodes((10, 1, 1, 0)))
        statistics.close()
    assert statistics.recent_return == 1
    assert len([r for r in caplog.records if "Training continues" in r.getMessage()]) == 1


def test_an_agent_is_judged_by_a_hundred_episodes_at_least():
    """Three environments have 34 each: 33 would be 99 in all."""
    statistics = EpisodeStatistics(num_training_envs=3)
    for number in range(34):
        assert statistics.judged_return(False) is None, number
        statistics.add(episodes(*[(1, 0, 0, env) for env in range(3)]))
    assert statistics.judged_return(False) == 0.0
