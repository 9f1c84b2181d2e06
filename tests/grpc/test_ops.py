"""Calls through the op: what arrives, in which batches, and whose errors reach whom."""

import collections
import itertools
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import cancellation

from seed_rl.common.types import EnvOutput
from seed_rl.grpc import NumpyClient, ops
from seed_rl.grpc.options import ServerOptions
from tests.grpc.op_helpers import INT, INTS, Background, Gate, serving, values, wait_for_waiting

Pair = collections.namedtuple("Pair", ["left", "right"])


@tf.function(input_signature=[INT])
def add_one(x):
    return x + 1


@tf.function(input_signature=[INTS])
def rows_seen(x):
    """Doubles, and tells each row how many rows its batch had."""
    return 2 * x, tf.fill([tf.shape(x)[0]], tf.shape(x)[0])


def static(n):
    @tf.function(input_signature=[tf.TensorSpec([n], tf.int32)])
    def foo(x):
        return x + 1

    return foo


# --- Values.


def test_nests_of_all_kinds_keep_their_form(socket_address):
    """Guards structure on both sides: named tuples, dicts in any key order, lists, None."""
    spec = EnvOutput(
        reward=tf.TensorSpec([None], tf.float32),
        done=tf.TensorSpec([None], tf.bool),
        observation={"z": tf.TensorSpec([None, 2], tf.uint8), "a": [tf.TensorSpec([None])]},
        abandoned=tf.TensorSpec([None], tf.bool),
        episode_step=tf.TensorSpec([None], tf.int32),
    )

    @tf.function(input_signature=[spec, tf.TensorSpec([None], tf.string)])
    def foo(env, text):
        z, (a,) = env.observation["z"], env.observation["a"]
        return Pair({"b": z, "a": tf.strings.join([text, "!"])}, [(a, None), env.reward])

    env = EnvOutput(
        reward=np.float32([1, 2]),
        done=np.array([True, False]),
        observation={"a": [np.float32([3, 4])], "z": np.uint8([[5, 6], [7, 8]])},
        abandoned=np.array([False, False]),
        episode_step=np.int32([9, 10]),
    )
    with serving(socket_address, foo):
        client = ops.Client(socket_address)
        result = client.foo(env, ["x", b"\xff\0"])
        with pytest.raises(ValueError, match=r"Expects arg\[0\].observation to be a dictionary"):
            client.foo(env._replace(observation={"a": env.observation["a"]}), ["x", "y"])
        other = NumpyClient(socket_address).foo(env, ["x", b"\xff\0"])
    assert type(result).__name__ == "Pair" and result._fields == ("left", "right")
    assert list(result.left) == ["a", "b"]
    assert values(result.left["a"]) == [b"x!", b"\xff\0!"]
    assert values(result.left["b"]) == [[5, 6], [7, 8]]
    assert values(result.right[0][0]) == [3, 4] and result.right[0][1] is None
    assert values(result.right[1]) == [1, 2]
    assert values(other.left["a"]) == [b"x!", b"\xff\0!"]
    assert values(other.right[1]) == [1, 2]


DTYPES = [
    *(tf.bool, tf.uint8, tf.int8, tf.uint16, tf.int16, tf.uint32, tf.int32, tf.uint64, tf.int64),
    *(tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.string),
]


def test_every_type_travels_unchanged(socket_address):
    """Guards the numbering of types, batched and not, and payloads large enough to be borrowed."""

    def identity(i, dtype, shape):
        def fn(x):
            return x

        fn.__name__ = f"identity_{i}"
        return tf.function(fn, input_signature=[tf.TensorSpec(shape, dtype)])

    alone = [identity(i, dtype, [None, 3, None]) for i, dtype in enumerate(DTYPES)]
    batched = [identity(i + 100, dtype, [None, 1000]) for i, dtype in enumerate(DTYPES)]
    with serving(socket_address, *alone, *batched):
        client = ops.Client(socket_address)
        for i, dtype in enumerate(DTYPES):
            for function, shape in ((i, [2, 3, 1]), (i + 100, [3, 1000]), (i + 100, [1000])):
                numbers = np.arange(np.prod(shape)).reshape(shape) % 2
                sent = tf.cast(numbers, dtype) if dtype != tf.string else numbers.astype(str)
                received = getattr(client, f"identity_{function}")(sent)
                assert received.dtype == dtype
                assert values(received) == values(tf.convert_to_tensor(sent))


def test_captured_variables_are_read_at_every_call(socket_address):
    """Guards that actors always get actions of the newest weights."""
    weights = tf.Variable([1, 2])

    @tf.function(input_signature=[INT])
    def foo(x):
        return weights + x

    with serving(socket_address, foo):
        client = ops.Client(socket_address)
        assert values(client.foo(0)) == [1, 2]
        weights.assign([5, 6])
        assert values(client.foo(1)) == [6, 7]


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


# --- Batches.


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
        one = Background(ops.Client(socket_address).foo, [0, 1, 2])
        wait_for_waiting(server, "foo", 1)
        two = Background(ops.Client(socket_address).foo, [10, 11, 12])
        assert values(one.result()) == [1, 2, 3]
        wait_for_waiting(server, "foo", 1)
        assert values(ops.Client(socket_address).foo([20, 21])) == [21, 22]
        assert values(two.result()) == [11, 12, 13]
        assert values(ops.Client(socket_address).foo([0, 1, 2, 3])) == [1, 2, 3, 4]


def gated(gate):
    @tf.function(input_signature=[INTS])
    def foo(x):
        with tf.control_dependencies([gate.wait()]):
            return rows_seen(x)

    return foo


def test_a_dynamic_batch_takes_who_waited_while_the_function_was_busy(socket_address):
    """Guards dynamic batching: it never waits for absent callers, and leaves nobody out."""
    gate = Gate()
    with serving(socket_address, gated(gate)) as server:
        clients = [ops.Client(socket_address) for _ in range(4)]
        calls = [Background(clients[0].foo, 0)]
        gate.wait_until_entered(1)
        calls += [Background(clients[1].foo, 1), Background(clients[2].foo, [2, 3])]
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
        calls = [Background(clients[0].foo, [0] * 4)]
        gate.wait_until_entered(1)
        calls = [calls[0]] + [Background(client.foo, [1] * 3) for client in clients[1:]]
        with pytest.raises(tf.errors.InvalidArgumentError, match="from 1 to 4, but it is 5"):
            clients[0].foo([0] * 5)
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
        calls = [Background(ops.Client(socket_address).meet, i) for i in range(2)]
        assert sorted(values(call.result()) for call in calls) == [1, 2]


# --- Errors.


def test_wrong_arguments_are_the_callers_error(socket_address):
    """Guards the messages that existing code matches, and that the connection survives them."""
    frames = tf.TensorSpec([None, 2, 3], tf.float32)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32), frames])
    def batched(x, y):
        return x

    @tf.function(input_signature=[tf.TensorSpec([4, 5]), tf.TensorSpec([2])])
    def alone(x, y):
        return tf.constant(0)

    with serving(socket_address, add_one, batched, alone):
        client = ops.Client(socket_address)
        for call, message in [
            (lambda: client.add_one(1, 2), "Expects 1 arguments, but 2 is provided"),
            (lambda: client.add_one(), "Expects 1 arguments, but 0 is provided"),
            (lambda: client.add_one("x"), r"Expects arg\[0\] to be int32 but string is provided"),
            (
                lambda: client.add_one([1]),
                r"Expects arg\[0\] to have shape with 0 dimension\(s\), but had shape \[1\]",
            ),
            (
                lambda: client.alone(0.0, [0.0, 0.0]),
                r"Expects arg\[0\] to have shape with 2 dimension\(s\), but had shape \[\]",
            ),
            (
                lambda: client.alone(tf.zeros([4, 6]), [0.0, 0.0]),
                r"Expects arg\[0\] to have shape \[4,5\], but had shape \[4,6\]",
            ),
            (
                lambda: client.batched([1, 2], tf.zeros([2, 3, 3])),
                r"Expects arg\[1\] to have shape \[\?,2,3\], but had shape \[2,3,3\]",
            ),
            (
                lambda: client.batched([1, 2], tf.zeros([2, 3])),
                r"Expects arg\[1\] to have shape with 3 dimension\(s\), but had shape \[2,3\]",
            ),
            (
                lambda: client.batched([1, 2], tf.zeros([3, 2, 3])),
                r"the same leading dimension, but arg\[0\] has 2 and arg\[1\] has 3",
            ),
        ]:
            with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                call()
        with pytest.raises(AttributeError, match="no function 'nothing'.*add_one"):
            client.nothing(1)
        assert values(client.add_one(1)) == 2


def test_the_functions_error_reaches_the_caller_with_its_kind(socket_address):
    """Guards codes and messages of errors that functions raise."""
    queue = tf.queue.FIFOQueue(1, [tf.int32])
    queue.close()

    @tf.function(input_signature=[INT])
    def check(x):
        tf.debugging.assert_positive(x, message="too small")
        return x

    @tf.function(input_signature=[INT])
    def empty(x):
        return x + queue.dequeue()

    with serving(socket_address, check, empty):
        client = ops.Client(socket_address)
        with pytest.raises(tf.errors.InvalidArgumentError, match="too small"):
            client.check(-1)
        with pytest.raises(tf.errors.OutOfRangeError, match="closed"):
            client.empty(0)
        assert values(client.check(1)) == 1


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
        good = Background(clients[1].foo, [1, 2], ["b", "c"])
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
            assert server.stats()["functions"]["foo"]["errors"] == 1
        else:
            for call in (good, also_good):
                with pytest.raises(tf.errors.InvalidArgumentError, match="negative"):
                    call.result()
            assert server.stats()["functions"]["foo"]["errors"] == 3


def test_results_that_do_not_fit_the_batch_are_errors(socket_address):
    """Guards functions whose results' shapes are known only when they run."""

    def returning(name, value):
        def fn(x):
            return tf.py_function(lambda x: tf.constant(value), [x], tf.int32)

        fn.__name__ = name
        return tf.function(fn, input_signature=[INTS])

    with serving(socket_address, returning("scalar", 1), returning("short", [1, 2])):
        client = ops.Client(socket_address)
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match="Output must be at least rank 1 when batching is enabled",
        ):
            client.scalar([1, 2, 3])
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"3 of .* had shape \[2\]"):
            client.short([1, 2, 3])
        assert values(client.short([1, 2])) == [1, 2]


# --- Inside tf.functions.


def test_calls_inside_a_tf_function_loop(socket_address):
    """Guards the client in graphs: order of calls, and static shapes of the results."""
    counter = tf.Variable(0)

    @tf.function(input_signature=[INT])
    def count(x):
        return counter.assign_add(x)

    with serving(socket_address, count, rows_seen):
        client = ops.Client(socket_address)

        @tf.function
        def loop():
            total = 0
            for _ in tf.range(10):
                total += client.count(1)
            assert total.shape == []
            assert client.rows_seen([1, 2, 3])[0].shape == [3]
            assert client.rows_seen(1)[0].shape == []
            return total

        assert values(loop()) == 55


def test_client_loops_of_one_process_do_not_starve_each_other(socket_address):
    """Guards the asynchronous kernel: more loops than cores, each waiting for all others."""
    loops = 8
    with serving(socket_address, static(loops)):

        def run():
            client = ops.Client(socket_address)

            @tf.function
            def loop():
                x = 0
                for _ in tf.range(20):
                    x = client.foo(x)
                return x

            return values(loop())

        assert [call.result() for call in [Background(run) for _ in range(loops)]] == [20] * loops


def test_a_bound_function_may_be_part_of_another(socket_address):
    """Guards that binding leaves the function's definition as it was."""

    @tf.function(input_signature=[INTS])
    def inner(x):
        return x + 1

    @tf.function(input_signature=[INTS])
    def outer(x):
        return 10 * inner(x)

    with serving(socket_address, inner):
        pass
    with serving(socket_address, outer, inner):
        client = ops.Client(socket_address)
        assert values(client.outer([1])) == [20]
        assert values(client.inner([1])) == [2]


def test_a_bound_function_may_call_the_server_itself(socket_address, free_port):
    """Guards that runs do not hold what nested calls need."""
    with serving(socket_address, add_one):
        inner = ops.Client(socket_address)

        @tf.function(input_signature=[INT])
        def outer(x):
            return inner.add_one(inner.add_one(x)) * 10

        address = f"localhost:{free_port}"
        with serving(address, outer):
            assert values(ops.Client(address).outer(1)) == 30


def test_a_call_can_be_cancelled(socket_address):
    """Guards the cancellation of the graph that a call is part of."""
    gate = Gate()
    with serving(socket_address, gated(gate), add_one):
        client = ops.Client(socket_address)
        manager = cancellation.CancellationManager()
        function = tf.function(lambda: client.foo(1)).get_concrete_function()
        call = Background(manager.get_cancelable_function(function))
        manager.start_cancel()
        with pytest.raises(tf.errors.CancelledError):
            call.result()
        assert values(client.add_one(1)) == 2


# --- Binding.


def test_what_cannot_be_bound(socket_address):
    """Guards mistakes in binding, each with a message that names it."""
    server = ops.Server([socket_address])
    with pytest.raises(tf.errors.UnavailableError, match="No function was bound"):
        server.start()
    with pytest.raises(ValueError, match="is not a tf.function"):
        server.bind(lambda x: x)
    with pytest.raises(ValueError, match="foo needs an input_signature"):

        @tf.function
        def foo(x):
            return x

        server.bind(foo)
    with pytest.raises(ValueError, match="different signatures"):
        server.bind([static(2), static(3)])
    with pytest.raises(ValueError, match="complex64, .* cannot be sent"):
        server.bind(
            tf.function(add_one.python_function, input_signature=[tf.TensorSpec([], tf.complex64)])
        )
    server.bind(add_one)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Function 'add_one' was bound twice."):
        server.bind(add_one)
    server.start()
    for action in (server.start, lambda: server.bind(rows_seen)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="Server is already started"):
            action()
    server.shutdown()
    with pytest.raises(tf.errors.InvalidArgumentError, match="server_addresses must be a vector"):
        ops.Server(socket_address)
    with pytest.raises(tf.errors.InvalidArgumentError, match="server_address must be a scalar"):
        ops.Client([socket_address])


def test_functions_without_arguments_or_results(socket_address):
    """Guards the smallest frames, and functions that are bound without a signature."""
    counter = tf.Variable(0)

    @tf.function
    def bump():
        counter.assign_add(1)

    @tf.function
    def read():
        return counter + 0

    with serving(socket_address, bump, read):
        client = ops.Client(socket_address)
        assert client.bump() is None
        assert values(client.read()) == 1


SEVERAL_DEVICES = """
import sys
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 3)
from seed_rl.grpc import ops

def make(device):
    with tf.device(device):
        weights = tf.Variable([[2.0]])
        constant = tf.constant(int(device[-1]))
    def foo(x, text):
        with tf.device(device):
            where = tf.raw_ops.Identity(input=constant)
            print(where.device)
            return tf.matmul(x, weights)[:, 0], tf.repeat(where, tf.shape(x)[0]), text + "!"
    specs = [tf.TensorSpec([None, 1]), tf.TensorSpec([None], tf.string)]
    return tf.function(foo, input_signature=specs)

server = ops.Server([sys.argv[1]])
server.bind([make("cpu:1"), make("cpu:2")])
server.start()
client = ops.Client(sys.argv[1])
results = [client.foo([[3.0]], ["a"]) for _ in range(4)]
assert [float(y[0]) for y, _, _ in results] == [6.0] * 4
assert [int(where[0]) for _, where, _ in results] == [1, 2, 1, 2]
assert all(text[0] == b"a!" for _, _, text in results)
# The server and the client are left running: the interpreter must end all the same.
"""


@pytest.mark.slow
def test_functions_on_several_devices_and_exit_without_shutdown(socket_address, repository):
    """Guards graphs with variables of other devices, and the end of a program that forgets."""
    program = textwrap.dedent(SEVERAL_DEVICES)
    result = subprocess.run(
        [sys.executable, "-c", program, socket_address],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert result.returncode == 0, result.stderr
    devices = {line.rsplit("/", 1)[-1] for line in result.stdout.split()}
    assert devices == {"device:CPU:1", "device:CPU:2"}


def test_functions_that_xla_compiles_are_compiled(socket_address):
    """Guards jit_compile: what XLA does not know is an error, as when the function is called."""

    @tf.function(input_signature=[INTS], jit_compile=True)
    def known(x):
        return x + 1

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], jit_compile=True)
    def unknown(x):
        return tf.strings.join([x, "!"])

    with serving(socket_address, known, unknown):
        client = ops.Client(socket_address)
        assert values(client.known([1, 2, 3])) == [2, 3, 4]
        with pytest.raises(tf.errors.InvalidArgumentError, match="tf2xla conversion failed"):
            client.unknown(["a"])


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
