"""Calls through the op: what arrives, and whose errors reach whom."""

import collections
import json

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import cancellation

from seed_rl.common.types import EnvOutput
from seed_rl.grpc import NumpyClient, ops, structures, wire
from tests.helpers.op_helpers import (
    INT,
    INTS,
    Background,
    Gate,
    add_one,
    gated,
    rows_seen,
    serving,
    static,
    values,
)
from tests.helpers.scripted_server import Scripted

Pair = collections.namedtuple("Pair", ["left", "right"])


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
        results = [client.foo(env, tf.constant(["x", b"\xff\0"]))]
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"Expects arg\[0\].observation to be a dictionary"
        ):
            client.foo(
                env._replace(observation={"a": env.observation["a"]}), tf.constant(["x", "y"])
            )
        results += [NumpyClient(socket_address).foo(env, np.array(["x", b"\xff\0"], object))]
    for result in results:
        assert type(result).__name__ == "Pair" and result._fields == ("left", "right")
        assert list(result.left) == ["a", "b"]
        assert values(result.left["a"]) == [b"x!", b"\xff\0!"]
        assert values(result.left["b"]) == [[5, 6], [7, 8]]
        assert values(result.right[0][0]) == [3, 4] and result.right[0][1] is None
        assert values(result.right[1]) == [1, 2]
    result.right[1][...] = 3  # The NumPy client's results are the caller's own.


def test_every_type_travels_unchanged(socket_address):
    """Guards the numbering of types, batched and not, and payloads large enough to be borrowed."""

    def identity(i, dtype, shape):
        def fn(x):
            return x

        fn.__name__ = f"identity_{i}"
        return tf.function(fn, input_signature=[tf.TensorSpec(shape, dtype)])

    alone = [identity(i, dtype, [None, 3, None]) for i, dtype in enumerate(wire.DTYPE_NAMES)]
    batched = [identity(i + 100, dtype, [None, 1000]) for i, dtype in enumerate(wire.DTYPE_NAMES)]
    with serving(socket_address, *alone, *batched):
        client = ops.Client(socket_address)
        for i, dtype in enumerate(wire.DTYPE_NAMES):
            for function, shape in ((i, [2, 3, 1]), (i + 100, [3, 1000]), (i + 100, [1000])):
                numbers = np.arange(np.prod(shape)).reshape(shape) % 2
                sent = tf.cast(numbers, dtype) if dtype != "string" else numbers.astype(str)
                received = getattr(client, f"identity_{function}")(sent)
                assert received.dtype == dtype
                assert values(received) == values(tf.convert_to_tensor(sent))


def test_any_byte_but_zero_is_true(socket_address):
    """Guards kernels, to which other values of a bool are undefined, from a server's bytes."""
    spec = structures.to_json(structures.TensorSpec("bool", (4,)))
    function = {"name": "foo", "batch": None, "arguments": {"tuple": []}, "outputs": spec}
    description = json.dumps({"protocol": 1, "functions": [function]})

    def script(server, frame):
        return [wire.encode_reply(frame.call_id, [np.uint8([0, 1, 2, 255]).view(bool)])]

    with Scripted(socket_address, script, description):
        received = ops.Client(socket_address).foo()
    assert received.numpy().view(np.uint8).tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize(("kind", "code"), [(wire.KIND_CALL, 0), (wire.KIND_REPLY, 3)])
def test_frames_that_are_no_answer(socket_address, kind, code):
    """A call, and a reply with an error's code: docs/wire_format.md calls them malformed."""
    nothing = {"name": "foo", "batch": None, "arguments": {"tuple": []}, "outputs": {"tuple": []}}
    description = json.dumps({"protocol": 1, "functions": [nothing]})

    def script(server, frame):
        answer = bytearray(wire.encode_call(frame.call_id, code, []))
        answer[4] = kind
        return [bytes(answer)]

    with Scripted(socket_address, script, description):
        with pytest.raises(tf.errors.InternalError, match="Malformed reply"):
            ops.Client(socket_address).foo()


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


# --- Errors.


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
            client.scalar(np.int32([1, 2, 3]))
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"3 of .* had shape \[2\]"):
            client.short(np.int32([1, 2, 3]))
        assert values(client.short(np.int32([1, 2]))) == [1, 2]


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
            assert client.rows_seen(np.int32([1, 2, 3]))[0].shape == [3]
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
        assert values(client.outer(np.int32([1]))) == [20]
        assert values(client.inner(np.int32([1]))) == [2]


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
