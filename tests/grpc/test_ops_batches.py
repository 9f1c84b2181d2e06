"""Which calls the op's server runs together, in which order, and who gets a batch's error."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.grpc import ops
from seed_rl.grpc.channel_options import ServerOptions
from tests.helpers.op_helpers import (
    INT,
    INTS,
    Background,
    Gate,
    gated,
    rows_seen,
    serving,
    static,
    values,
    wait_for_waiting,
)
from tests.helpers.waiting import wait_until


def test_tensors_kept_by_the_function_are_not_overwritten_by_later_batches(socket_address):
    """Guards the reuse of batch memory: it must wait until the function's last tensor is gone."""
    kept = tf.queue.FIFOQueue(100, [tf.float32])

    @tf.function(input_signature=[tf.TensorSpec([None, 5000], tf.float32)])
    def keep(x):
        kept.enqueue(x)
        return x[:, 0]

    with serving(socket_address, keep):
        client = ops.Client(socket_address)
        for i in range(20):
            assert values(client.keep(np.full([2, 5000], i, np.float32))) == [i, i]
    for i in range(20):
        np.testing.assert_array_equal(kept.dequeue(), np.full([2, 5000], i))


def test_a_tensor_ends_with_the_rows_of_its_batch(socket_address):
    """Guards copies to a GPU, and what serializes, from memory that a fuller batch would use."""

    @tf.function(input_signature=[tf.TensorSpec([None, 7], tf.int32)])
    def serialized(x):
        message = tf.io.serialize_tensor(x)
        return tf.fill([tf.shape(x)[0]], tf.strings.length(message)), x

    with serving(socket_address, serialized):
        client = ops.Client(socket_address)
        rows = np.ones([2, 7], np.int32)
        sizes, x = client.serialized(rows)
    assert values(sizes) == 2 * [len(tf.io.serialize_tensor(rows).numpy())]
    assert tf.io.serialize_tensor(x) == tf.io.serialize_tensor(rows)


def test_many_clients_get_their_own_rows(socket_address):
    """Guards rows of concurrent calls, of one row and of several, against being mixed up."""
    spec = tf.TensorSpec([None, 700], tf.int32)  # 2,800 bytes a row.

    @tf.function(input_signature=[INTS, spec])
    def check(ids, frames):
        return tf.reduce_sum(frames, axis=1), frames + ids[:, tf.newaxis]

    def loop(k):
        client = ops.Client(socket_address)
        for i in range(60):
            value = 1000 * k + i
            if k % 2:
                total, frames = client.check(np.int32(value), np.full([700], value, np.int32))
                assert total.numpy() == 700 * value
                assert np.all(frames.numpy() == 2 * value)
            else:
                ids = np.int32([value, value + 1, value + 2])
                total, frames = client.check(ids, np.repeat(ids[:, None], 700, axis=1))
                assert values(total) == values(700 * ids)
                np.testing.assert_array_equal(frames, np.repeat(2 * ids[:, None], 700, axis=1))

    with serving(socket_address, check) as server:
        for thread in [Background(loop, k) for k in range(6)]:
            thread.result()
        stats = server.stats()["functions"]["check"]
    assert stats["calls"] == 360 and stats["rows"] == 3 * 60 + 3 * 180 and stats["errors"] == 0


def test_a_static_batch_waits_for_its_rows(socket_address):
    """Guards that a function with N rows never runs on fewer, and answers calls of one row."""
    with serving(socket_address, static(3)) as server:
        first = [Background(ops.Client(socket_address).foo, i) for i in range(2)]
        wait_for_waiting(server, "foo", 2)
        assert values(ops.Client(socket_address).foo(2)) == 3
        assert [values(call.result()) for call in first] == [1, 2]
        assert server.stats()["functions"]["foo"]["batches"] == 1


def test_client_side_batches_fill_several_places(socket_address):
    """Guards calls with the leading dimension, also where their rows straddle two batches."""
    with serving(socket_address, static(4)) as server:
        one = Background(ops.Client(socket_address).foo, np.int32([0, 1, 2]))
        wait_for_waiting(server, "foo", 1)
        two = Background(ops.Client(socket_address).foo, np.int32([10, 11, 12]))
        assert values(one.result()) == [1, 2, 3]
        wait_for_waiting(server, "foo", 1)
        assert values(ops.Client(socket_address).foo(np.int32([20, 21]))) == [21, 22]
        assert values(two.result()) == [11, 12, 13]
        assert values(ops.Client(socket_address).foo(np.int32([0, 1, 2, 3]))) == [1, 2, 3, 4]


def test_a_call_in_two_batches_fails_once(socket_address):
    """Whichever of its parts fails, its caller gets one error, and one is counted."""

    @tf.function(input_signature=[tf.TensorSpec([4], tf.int32)])
    def positive(x):
        tf.debugging.assert_positive(x)
        return x

    for rows in ([0, 1, 1, 1], [1, 1, 1, 0], [0, 1, 1, 0]):
        with serving(socket_address, positive) as server:
            one = Background(ops.Client(socket_address).positive, np.int32([1, 1]))
            wait_for_waiting(server, "positive", 1)
            torn = Background(ops.Client(socket_address).positive, np.int32(rows))
            wait_until(lambda server=server: server.stats()["functions"]["positive"]["batches"])
            last = Background(ops.Client(socket_address).positive, np.int32([1, 1]))
            with pytest.raises(tf.errors.InvalidArgumentError):
                torn.result()
            failed = 1
            for other, fails in ((one, rows[:2] != [1, 1]), (last, rows[2:] != [1, 1])):
                failed += fails
                if fails:
                    with pytest.raises(tf.errors.InvalidArgumentError):
                        other.result()
                else:
                    assert values(other.result()) == [1, 1]

            def errors(server=server):
                return server.stats()["functions"]["positive"]["errors"]

            # A call is counted after it has been answered.
            wait_until(lambda errors=errors, failed=failed: errors() >= failed)
            assert errors() == failed


def test_a_dynamic_batch_takes_who_waited_while_the_function_was_busy(socket_address):
    """Guards dynamic batching: it never waits for absent callers, and serves all of them."""
    gate = Gate()
    with serving(socket_address, gated(gate)) as server:
        clients = [ops.Client(socket_address) for _ in range(4)]
        calls = [Background(clients[0].foo, 0)]
        gate.wait_until_entered(1)
        calls += [Background(clients[1].foo, 1), Background(clients[2].foo, np.int32([2, 3]))]
        calls += [Background(clients[3].foo, 4)]
        wait_for_waiting(server, "foo", 3)
        gate.open(2)
        results = [[values(part) for part in call.result()] for call in calls[1:]]
    assert results == [[2, 4], [[4, 6], [4, 4]], [8, 4]]
    assert [values(part) for part in calls[0].result()] == [0, 1]


def test_dynamic_batches_are_no_larger_than_allowed(socket_address):
    """Guards max_batch_size: calls are not torn apart, too large ones are refused."""
    gate = Gate()
    with serving(socket_address, gated(gate), options=ServerOptions(max_batch_size=4)):
        clients = [ops.Client(socket_address) for _ in range(4)]
        calls = [Background(clients[0].foo, np.int32([0] * 4))]
        gate.wait_until_entered(1)
        calls = [calls[0]] + [Background(client.foo, np.int32([1] * 3)) for client in clients[1:]]
        with pytest.raises(tf.errors.InvalidArgumentError, match="from 1 to 4, but it is 5"):
            clients[0].foo(np.int32([0] * 5))
        with pytest.raises(tf.errors.InvalidArgumentError, match="from 1 to 4, but it is 0"):
            clients[0].foo(np.zeros([0], np.int32))
        gate.open(4)
        assert [values(call.result()[1]) for call in calls] == [[4] * 4] + 3 * [[3] * 3]


def test_the_batch_timeout_collects_callers_and_ends(socket_address):
    """Guards batch_timeout_ms: a full batch starts at once, a partial one after the time."""
    options = ServerOptions(max_batch_size=2, batch_timeout_ms=1e9)
    with serving(socket_address, rows_seen, options=options) as server:
        one = Background(ops.Client(socket_address).rows_seen, 1)
        wait_for_waiting(server, "rows_seen", 1)
        assert values(ops.Client(socket_address).rows_seen(2)[1]) == 2
        assert values(one.result()[1]) == 2
        # Shutting down does not wait for the time either.
        one = Background(ops.Client(socket_address).rows_seen, 1)
        wait_for_waiting(server, "rows_seen", 1)
    with pytest.raises(tf.errors.UnavailableError):
        one.result()
    options = ServerOptions(max_batch_size=2, batch_timeout_ms=20)
    with serving(socket_address, rows_seen, options=options):
        assert values(ops.Client(socket_address).rows_seen(1)[1]) == 1


def test_functions_of_one_name_take_turns(socket_address):
    """Guards the order of round-robin, with batches and without."""

    def several(signature):
        def make(k):
            def foo(x):
                return 0 * x + k

            return tf.function(foo, input_signature=[signature])

        return [make(k) for k in range(3)]

    for signature in (INT, INTS, tf.TensorSpec([1], tf.int32)):
        with serving(socket_address, several(signature)):
            client = ops.Client(socket_address)
            assert [int(client.foo(5)) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize("signature", [INT, INTS])
@pytest.mark.parametrize("functions, max_in_flight", [(2, 1), (1, 2)])
def test_runs_overlap(socket_address, functions, max_in_flight, signature):
    """Guards that two functions, or two runs of one, really run at the same time."""
    here, there = tf.queue.FIFOQueue(1, [tf.bool]), tf.queue.FIFOQueue(1, [tf.bool])

    @tf.function(input_signature=[signature])
    def meet(x):
        # Returns only while two are inside: one gives what the other takes.
        first = tf.reduce_all(x == 0)
        tf.cond(first, lambda: here.enqueue(True), lambda: there.enqueue(True))
        met = tf.cond(first, there.dequeue, here.dequeue)
        with tf.control_dependencies([met]):
            return x + 1

    with serving(socket_address, [meet] * functions, max_in_flight=max_in_flight):
        calls = [Background(ops.Client(socket_address).meet, 0)]
        # Calls that arrive together may share a batch; this one is inside before the other comes.
        wait_until(lambda: here.size() == 1)
        calls.append(Background(ops.Client(socket_address).meet, 1))
        assert sorted(values(call.result()) for call in calls) == [1, 2]


@pytest.mark.parametrize("isolate_errors", [False, True])
def test_who_gets_the_error_of_a_batch(socket_address, isolate_errors):
    """Guards isolate_errors: with it, only the caller at fault fails, and others get results."""
    gate = Gate()

    @tf.function(input_signature=[INTS, tf.TensorSpec([None], tf.string)])
    def foo(x, text):
        with tf.control_dependencies([gate.wait()]):
            tf.debugging.assert_non_negative(x, message="negative")
            return x + 1, tf.strings.join([text, "!"])

    with serving(socket_address, foo, isolate_errors=isolate_errors) as server:
        clients = [ops.Client(socket_address) for _ in range(4)]
        busy = Background(clients[0].foo, 0, "a")
        gate.wait_until_entered(1)
        good = Background(clients[1].foo, np.int32([1, 2]), np.array(["b", "c"]))
        wait_for_waiting(server, "foo", 1)
        bad = Background(clients[2].foo, -1, "d")
        wait_for_waiting(server, "foo", 2)
        also_good = Background(clients[3].foo, 3, "e")
        wait_for_waiting(server, "foo", 3)
        gate.open(1 + 1 + 3)
        busy.result()
        with pytest.raises(tf.errors.InvalidArgumentError, match="negative"):
            bad.result()
        if isolate_errors:
            assert values(good.result()[0]) == [2, 3]
            assert values(good.result()[1]) == [b"b!", b"c!"]
            assert values(also_good.result()[0]) == 4
        else:
            for call in (good, also_good):
                with pytest.raises(tf.errors.InvalidArgumentError, match="negative"):
                    call.result()
        failed = 1 if isolate_errors else 3
        # A call is counted after it has been answered.
        wait_until(lambda: server.stats()["functions"]["foo"]["errors"] >= failed)
        stats = server.stats()["functions"]["foo"]
        assert stats["errors"] == failed and "negative" in stats["last_error"]
        wait_until(lambda: server.stats()["functions"]["foo"]["answered"] == 4 - failed)


def test_the_last_error_is_short_and_printable(socket_address):
    """Guards the terminal of the learner from text that a caller chose."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def echo(x):
        tf.debugging.Assert(tf.reduce_all(x == ""), [x], summarize=-1)
        return x

    with serving(socket_address, echo) as server:
        with pytest.raises(tf.errors.InvalidArgumentError):
            ops.Client(socket_address).echo(['\x1b[31m"é\n' + 1000 * "a"])
        wait_until(lambda: server.stats()["functions"]["echo"]["errors"])
        message = server.stats()["functions"]["echo"]["last_error"]
    assert message.isascii() and message.isprintable() and len(message) == 300


def test_batching_is_chosen_by_the_shapes(socket_address):
    """Guards the rule by which a function is batched, as clients see it."""

    def function(i, specs, result):
        def fn(*args):
            return result(*args)

        fn.__name__ = f"f{i}"
        return tf.function(fn, input_signature=specs)

    floats = tf.TensorSpec([None, 2])
    ragged = tf.TensorSpec([None, None])
    cases = [
        ([INTS], lambda x: x, 0),
        ([INTS, floats], lambda x, y: (y, x), 0),
        ([tf.TensorSpec([5])], lambda x: x, 5),
        ([tf.TensorSpec([5]), tf.TensorSpec([5, 2])], lambda x, y: y, 5),
        ([INT], lambda x: x, None),
        ([INT, INTS], lambda x, y: y, None),
        ([INTS], lambda x: x[0], None),
        ([INTS], lambda x: tf.zeros([3]), None),
        ([tf.TensorSpec([5])], lambda x: x[:4], None),
        ([tf.TensorSpec([5]), tf.TensorSpec([4])], lambda x, y: x, None),
        ([ragged], lambda x: x, None),
        ([tf.TensorSpec(None)], lambda x: x, None),
        ([], lambda: tf.zeros([3]), None),
    ]
    functions = [function(i, specs, fn) for i, (specs, fn, _) in zip(itertools.count(), cases)]
    with serving(socket_address, *functions):
        client = ops.Client(socket_address)
        found = [client.functions[f"f{i}"].batch for i in range(len(cases))]
    assert found == [batch for _, _, batch in cases]
