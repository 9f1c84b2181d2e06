"""The native store against a plain Python one, and its waits."""

import itertools
import time

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from seed_rl.common.inference.inference_store import InferenceStore
from seed_rl.common.types import LARGEST
from seed_rl.grpc import ops
from tests.helpers.inference_stores import env_outputs, make_store, step, step_of
from tests.helpers.op_helpers import Background, serving
from tests.helpers.waiting import wait_until


class Oracle:
    """What the store should do, for one environment at a time and lists of plain numbers."""

    def __init__(self, unroll_length, overlap):
        self.length, self.overlap = unroll_length, overlap
        self.envs, self.unrolls = {}, []

    def step(self, env_id, run_id, value):
        env = self.envs.get(env_id)
        if env is None or env["run_id"] != run_id:
            env = {"run_id": run_id, "history": [], "state": 7.0, "action": 0, "unrolled": 0}
            self.envs[env_id] = env
        before = (env["action"], env["state"])
        env["history"].append((value, env["state"]))
        env["action"], env["state"] = value, float(value)
        first = env["unrolled"] * self.length
        whole = self.overlap + self.length + 1
        if len(env["history"]) == first + whole:
            part = env["history"][first:]
            self.unrolls.append((env_id, part[0][1], [v for v, _ in part]))
            env["unrolled"] += 1
        return before


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(
    unroll_length=st.integers(1, 5),
    overlap=st.integers(0, 8),
    batches=st.lists(
        st.lists(
            st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=4,
            unique_by=lambda e: e[0],
        ),
        max_size=40,
    ),
)  # fmt: skip
def test_agrees_with_a_plain_implementation(unroll_length, overlap, batches):
    """Guards unroll contents, overlap, first states, previous actions and resets of lives."""
    store = make_store(unroll_length=unroll_length, num_overlapping_steps=overlap)
    oracle = Oracle(unroll_length, overlap)
    run_ids = [0] * 4
    for value, batch in enumerate(batches, start=1):
        for env_id, restarted in batch:
            run_ids[env_id] += restarted
        ids = [env_id for env_id, _ in batch]
        runs = [run_ids[env_id] for env_id in ids]
        actions, states = step(store, ids, runs, value)
        for i, (env_id, run_id) in enumerate(zip(ids, runs, strict=True)):
            assert (actions[i], states[i, 0]) == oracle.step(env_id, run_id, value)
    count = store.counters().queue_size
    assert count == len(oracle.unrolls)
    if count:
        unrolls = store.dequeue(count)
        for i, (env_id, state, values) in enumerate(oracle.unrolls):
            assert unrolls.env_ids[i] == env_id
            np.testing.assert_array_equal(unrolls.agent_state[0][i], [state] * 2)
            np.testing.assert_array_equal(
                unrolls.steps["observation"][:, i], np.repeat(values, 3).reshape(-1, 3) % 256
            )


def test_late_call_of_a_replaced_life_is_refused():
    """Guards that two lives of an environment never mix, whichever of their calls comes last."""
    store = make_store()
    step(store, [0], [1])
    step(store, [0], [2], 5)
    with pytest.raises(tf.errors.FailedPreconditionError, match="newer actor"):
        step(store, [0], [1])
    assert step(store, [0], [2])[0] == [5]


def test_step_of_a_life_replaced_during_inference_is_dropped():
    """Guards the interval between begin and end."""
    store = make_store(unroll_length=1)
    ids, old, new = tf.constant([0]), tf.constant([1], tf.int64), tf.constant([2], tf.int64)
    outputs = env_outputs(1)
    store.begin(ids, old, outputs, outputs.reward)
    store.begin(ids, new, outputs, outputs.reward)
    store.end(ids, old, tf.constant([9]), (tf.fill([1, 2], 9.0),), step_of(outputs))
    actions, state = store.begin(ids, new, outputs, outputs.reward)
    assert actions.numpy() == [0]
    np.testing.assert_array_equal(state[0], [[7.0, 7.0]])
    assert store.counters().dropped == 1


def test_actors_that_share_environments_do_not_mix_their_rows():
    """Guards rows, which are copied without the store's lock, when lives replace each other."""
    size, num_envs, lives = 300_000, 1, itertools.count(1)
    store = InferenceStore(
        num_envs=num_envs,
        num_training_envs=num_envs,
        unroll_length=4,
        num_overlapping_steps=0,
        queue_capacity=1000,
        action_specs=tf.TensorSpec([size], tf.int32),
        initial_state=(tf.zeros([1, size], tf.int32),),
        step_specs=tf.TensorSpec([size], tf.int32),
    )
    ids, outputs = tf.range(num_envs), env_outputs(num_envs)

    def act():
        for life in itertools.islice(lives, 40):
            runs = tf.fill([num_envs], tf.constant(life, tf.int64))
            for value in range(100 * life, 100 * life + 8):
                try:
                    actions, (state,) = store.begin(ids, runs, outputs, outputs.reward)
                except tf.errors.FailedPreconditionError:
                    break
                before = int(actions[0, 0])
                assert before in (value - 1, 0)  # 0: a life begins, or a forgotten one does again.
                assert np.all(actions == before) and np.all(state == before)
                rows = tf.fill([num_envs, size], value)
                store.end(ids, runs, rows, (rows,), rows)

    threads = [Background(act) for _ in range(3)]
    for thread in threads:
        thread.result()
    counters = store.counters()
    assert counters.refused + counters.dropped > 0
    unrolls = store.dequeue(counters.queue_size)
    first = unrolls.steps[0].numpy()
    np.testing.assert_array_equal(unrolls.steps, [first + step for step in range(5)])
    np.testing.assert_array_equal(first, np.broadcast_to(first[:, :1], first.shape))
    state = unrolls.agent_state[0].numpy()
    np.testing.assert_array_equal(state, np.where(state[:, :1] == 0, 0, first - 1))


@pytest.mark.parametrize(
    ("bad_ids", "message"),
    [
        *((bad_ids, "Environment id .* is not in") for bad_ids in ([-1], [4], [0, 99])),
        ([0, 1, 1], "Duplicate environment ids"),  # Existing code matches this text.
    ],
)
def test_wrong_environment_ids_change_nothing(bad_ids, message):
    """Guards against a foreign actor; the good ids of its batch keep their state too."""
    store = make_store()
    step(store, [0], [1], 5)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        step(store, bad_ids, 2)
    assert step(store, [0], [1])[0] == [5]


def test_evaluation_environments_fill_no_unrolls():
    store = make_store(num_envs=2, num_training_envs=1, unroll_length=1)
    for value in range(4):
        step(store, [0, 1], [1, 1], value)
    assert store.counters().queue_size == 3
    assert set(store.dequeue(3).env_ids.numpy()) == {0}


def test_episode_statistics():
    """Guards steps and returns at done, at truncation (whose reset step is no step) and restart.

    And when episodes ended: steps count in all lives, also the reset after a truncation, which
    fills a row of the unroll like them, but those of evaluation do not.
    """
    store = make_store(num_envs=2, num_training_envs=1)
    step(store, [1], [1])
    step(store, [0], [1])  # reset
    step(store, [0], [1], reward=1.0)
    step(store, [0], [1], reward=2.0, done=True)
    step(store, [1], [1], done=True)
    step(store, [0], [1], reward=4.0)  # final observation of a truncated episode
    step(store, [0], [1], reward=0.0, done=True, abandoned=True)
    step(store, [0], [1], reward=8.0)
    step(store, [0], [2])  # the actor died in the third episode
    step(store, [0], [2], reward=16.0, done=True)
    episodes = store.episodes()
    np.testing.assert_array_equal(episodes.num_steps, [2, 1, 1, 1])
    np.testing.assert_array_equal(episodes.ended_at, [2, 2, 4, 6])
    np.testing.assert_array_equal(episodes.returns, [3.0, 0.0, 4.0, 16.0])
    np.testing.assert_array_equal(episodes.raw_returns, [3.0, 0.0, 4.0, 16.0])
    assert store.episodes().env_ids.size == 0
    for reward in (-LARGEST, 1.1 * LARGEST, float("nan")):
        step(store, [0], [2], reward=reward)
        step(store, [0], [2], reward=LARGEST, done=True)
    episodes = store.episodes()
    np.testing.assert_array_equal(episodes.returns, [0.0, np.nan, np.nan])
    np.testing.assert_array_equal(episodes.raw_returns, episodes.returns)


def test_successes_are_those_of_the_last_reports():
    """Not of steps before, nor of ends of the learner's episode alone."""
    store = make_store(num_envs=1)
    for done, at, success in [(0, 0, 0), (0, 1, 1), (1, 2, 1), (1, 0, 0), (0, 1, 0), (1, 0, 1)]:
        outputs = env_outputs(1, done=bool(done), episode_step=at)
        ids, runs = tf.constant([0]), tf.constant([1], tf.int64)
        store.begin(ids, runs, outputs, outputs.reward, tf.constant([success], tf.float32))
        store.end(ids, runs, tf.constant([0]), (tf.zeros([1, 2]),), step_of(outputs))
    np.testing.assert_array_equal(store.episodes().successes, [0, 1])
    step(store, [0], [1], done=True)
    np.testing.assert_array_equal(store.episodes().successes, [np.nan])


def test_episodes_continue_where_only_the_learners_ends():
    """Guards returns and lengths of whole games in which lost lives end the learner's episode."""
    store = make_store(num_envs=1)
    step(store, [0], [1])
    step(store, [0], [1], reward=1.0, done=True, episode_step=1)
    step(store, [0], [1], reward=2.0, episode_step=2)
    assert store.episodes().env_ids.size == 0
    step(store, [0], [1], reward=4.0, done=True, episode_step=0)
    step(store, [0], [1], reward=8.0, done=True, episode_step=1)  # Also the last before a limit.
    step(store, [0], [1], done=True, abandoned=True, episode_step=0)
    episodes = store.episodes()
    np.testing.assert_array_equal(episodes.num_steps, [3, 1])
    np.testing.assert_array_equal(episodes.returns, [7.0, 8.0])


def test_full_queue_makes_inference_wait_and_loses_nothing():
    """Guards back-pressure: with the queue full, `end` returns only after a dequeue."""
    store = make_store(num_envs=1, unroll_length=1, queue_capacity=1)
    step(store, [0], [1], 0)
    step(store, [0], [1], 1)
    blocked = Background(step, store, [0], 1, 2)
    wait_until(lambda: store.counters().blocked == 1)
    assert blocked.waits()
    first = store.dequeue(1)
    blocked.result()
    second = store.dequeue(1)
    np.testing.assert_array_equal(first.steps["observation"][:, 0, 0], [0, 1])
    np.testing.assert_array_equal(second.steps["observation"][:, 0, 0], [1, 2])
    assert store.counters().blocked == 1


def test_close_ends_waits():
    """Guards shutdown: a training loop that waits for data gets the end of the queue."""
    store = make_store()
    waiting = Background(store.dequeue, 1)
    assert waiting.waits()
    store.close()
    with pytest.raises(tf.errors.OutOfRangeError):
        waiting.result()
    step(store, [0], [1])  # inference continues


def test_a_cancelled_request_lets_a_smaller_one_behind_it_through():
    """Guards datasets, whose iterators may be deleted while they wait."""
    store = make_store(num_envs=1, unroll_length=1)
    counts = tf.data.Dataset.from_tensor_slices([1, 3])
    iterator = iter(counts.map(lambda count: store.dequeue(count).env_ids).prefetch(1))
    for value in range(2):
        step(store, [0], [1], value)
    next(iterator)  # The next request is for three.
    time.sleep(0.2)
    smaller = Background(store.dequeue, 1)
    for value in range(2, 4):
        step(store, [0], [1], value)
    time.sleep(0.2)
    del iterator
    assert smaller.result().env_ids.shape == [1]


def test_wrong_row_shape_is_an_error():
    store, recorded = make_store(), step_of(env_outputs(1))
    with pytest.raises(tf.errors.InvalidArgumentError, match="actions.0. should be int32"):
        store.end([0], [1], tf.zeros([1, 2], tf.int32), (tf.zeros([1, 2]),), recorded)


@pytest.mark.parametrize("count", [0, 2])
def test_wrong_number_of_fields_is_an_error(count):
    """Guards memory: the native code has memory for the fields of the store alone."""
    store = make_store(num_envs=1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="actions should have 1 field"):
        store.end([0], [1], count * (np.int32([0]),), (np.zeros([1, 2], np.float32),), ())


@pytest.mark.parametrize(("limit", "steps"), [("queue_capacity", 3), ("unrolls_per_step", 2)])
def test_a_server_ends_while_inference_waits_for_training(socket_address, limit, steps):
    """Guards programs that shut their server down without closing the store first."""
    store = make_store(num_envs=1, unroll_length=1, **{limit: 1})
    run_ids = tf.constant([5], tf.int64)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
    def infer(env_ids):
        outputs = env_outputs(1)
        actions, state = store.begin(env_ids, run_ids, outputs, outputs.reward)
        store.end(env_ids, run_ids, actions, state, step_of(outputs))
        return actions

    with serving(socket_address, infer, isolate_errors=True) as server:
        client = ops.Client(socket_address)
        while store.counters().queue_size < 1:
            client.infer(np.int32([0]))
        blocked = Background(client.infer, np.int32([0]))
        if limit == "queue_capacity":
            wait_until(lambda: store.counters().blocked == 1)
        else:
            assert blocked.waits()  # Nothing counts those that wait for their turn.
        server.shutdown()
        with pytest.raises(tf.errors.OpError):
            blocked.result()
    assert store.counters().steps == steps  # A full queue lets the step begin.


def test_small_rewards_count_beside_large_returns():
    """Guards long episodes: sums in float32 would lose 1 beside 2^24."""
    store = make_store(num_envs=1)
    for reward in (0.0, 2.0**24, 1.0, 1.0):
        step(store, [0], [5], reward=reward)
    step(store, [0], [5], reward=0.0, done=True)
    np.testing.assert_array_equal(store.episodes().returns, [2.0**24 + 2])


def test_a_step_begun_twice_counts_once():
    """Guards returns: where the network fails, the rows of its batch are begun again one by one."""
    store = make_store(num_envs=1)
    ids, run_ids = tf.constant([0]), tf.constant([5], tf.int64)
    step(store, [0], [5])
    outputs = env_outputs(1, reward=2.0, done=True)
    first = store.begin(ids, run_ids, outputs, outputs.reward)
    again = store.begin(ids, run_ids, outputs, outputs.reward)
    for a, b in zip(tf.nest.flatten(first), tf.nest.flatten(again), strict=True):
        np.testing.assert_array_equal(a, b)
    step(store, [0], [5], reward=2.0, done=True)
    step(store, [0], [5], reward=1.0, done=True)
    episodes = store.episodes()
    np.testing.assert_array_equal(episodes.returns, [2.0, 1.0])
    np.testing.assert_array_equal(episodes.num_steps, [1, 1])


def test_silence_is_the_time_since_the_last_call():
    """Guards that stopped actors are named, and only those."""
    store = make_store(queue_capacity=1, unroll_length=1)
    assert np.isnan(store.silence()).all()
    step(store, [0, 1], [1, 1])
    time.sleep(0.3)
    step(store, [1], [1])
    silence = store.silence()
    assert silence[0] >= 0.3 and silence[0] - silence[1] >= 0.3
    assert np.isnan(silence[2:]).all()
    time.sleep(0.1)
    assert store.silence()[1] - silence[1] >= 0.1  # Without calls it grows.


def test_waiting_for_the_learner_is_no_silence():
    """Guards actors whose calls wait for the network, or for room in the queue."""
    store = make_store(queue_capacity=1, unroll_length=1)
    ids, runs, outputs = tf.constant([0]), tf.constant([1], tf.int64), env_outputs(1)
    store.begin(ids, runs, outputs, outputs.reward)
    time.sleep(0.2)
    assert store.silence()[0] == 0
    store.end(ids, runs, tf.constant([9]), (tf.fill([1, 2], 9.0),), step_of(outputs))
    assert store.silence()[0] >= 0.2

    step(store, [0], [1])  # Fills the queue.
    blocked = Background(step, store, [0])
    wait_until(lambda: store.counters().blocked == 1)
    before = store.silence()[0]
    time.sleep(0.2)
    assert store.silence()[0] == before == 0
    store.close()
    blocked.result()
