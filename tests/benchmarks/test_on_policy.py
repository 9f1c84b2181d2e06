"""How the on-policy benchmark counts and compares; torch is not needed."""

import pytest

from benchmarks import on_policy, on_policy_contestants, workloads


def test_a_window_holds_whole_iterations_after_the_warmup():
    """Neither compilation at the start nor an iteration cut short at the end is counted."""
    times = iter([0.0, 100.0, 150.0, 153.0, 156.0, 159.0, 162.0])
    window = on_policy_contestants.Window(seconds=8, warmup=2, clock=lambda: next(times))
    begun = 1
    while window.iteration_begins():
        begun += 1
    # From 150 to 159: the first time that is at least 8 s later.
    assert begun == 6
    assert window.iterations_per_s() == pytest.approx(3 / 9)


def test_a_window_holds_at_least_one_iteration():
    """A machine slower than the window still gives a figure."""
    times = iter([0.0, 10.0, 20.0])
    window = on_policy_contestants.Window(seconds=0, warmup=1, clock=lambda: next(times))
    assert [window.iteration_begins() for _ in range(3)] == [True, True, False]
    assert window.iterations_per_s() == pytest.approx(1 / 10)


def test_the_best_variant_of_each_contestant_counts():
    """By its median: one lucky round does not make a variant the best."""
    measured = {
        ("a", "lucky once"): [10.0, 90.0, 10.0],
        ("a", "better"): [40.0, 20.0, 40.0],
        (on_policy.OURS, "as shipped"): [80.0, 80.0, 40.0],
        ("b", "only"): [10.0, 20.0, 40.0],
    }
    results = on_policy.summary(measured)
    assert list(results)[0] == on_policy.OURS
    assert results["a"] == {"variant": "better", "frames_per_s": 40.0, "ratio": 2.0}
    assert results["b"] == {"variant": "only", "frames_per_s": 20.0, "ratio": 4.0}
    assert results[on_policy.OURS]["ratio"] == 1.0


def test_all_do_the_same_work():
    """The contestants' sizes are those of this package's workload."""
    ours, theirs = workloads.WORKLOADS[on_policy.WORKLOAD], on_policy_contestants
    assert ours.env == {"env_name": theirs.ENV_NAME}
    assert (ours.num_envs, ours.unrolls_per_step) == (theirs.NUM_ENVS, theirs.NUM_ENVS)
    assert ours.unroll_length == theirs.STEPS
    assert ours.flags["epochs_per_step"] == theirs.EPOCHS
    assert ours.batch_size * ours.unroll_length == theirs.MINIBATCH
