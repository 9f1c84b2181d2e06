"""What parts of the agent log, in eager code, functions and loops."""

import concurrent.futures
import threading

import pytest
import tensorflow as tf

from seed_rl.agents.policy_gradient.modules.logging_module import (
    LoggingModule,
    LoggingTape,
    ModuleAlreadyTapedError,
)


class Part(tf.Module, LoggingModule):
    def __init__(self, key):
        super().__init__()
        self._key = key

    def __call__(self, x):
        self.log(self._key, x)
        return 2 * x


class Whole(tf.Module, LoggingModule):
    def __init__(self, *keys):
        super().__init__()
        self.parts = [Part(key) for key in keys]

    def __call__(self, x):
        self.log("whole", x + 1)
        return sum(part(x) for part in self.parts)


def test_a_tape_collects_from_submodules():
    module = Whole("a", "b")
    with LoggingTape(module) as logs:
        module(tf.constant(3.0))
    assert {key: float(value) for key, value in logs.items()} == {"a": 3.0, "b": 3.0, "whole": 4.0}
    module(tf.constant(5.0))  # Without a tape nothing is logged.
    assert float(logs["a"]) == 3.0


def test_a_key_twice_is_an_error():
    module = Whole("a", "a")
    with pytest.raises(ValueError, match="'a' was logged twice"), LoggingTape(module):
        module(tf.constant(1.0))
    with LoggingTape(module.parts[0]) as logs:  # The failed tape has ended.
        module.parts[0](tf.constant(1.0))
    assert list(logs) == ["a"]


def test_nested_tapes_are_an_error():
    """Guards values against landing in another's tape, also of a module within."""
    module = Whole("a")
    for inner in (module, module.parts[0]):
        with (
            LoggingTape(module),
            pytest.raises(ModuleAlreadyTapedError, match="cannot be nested"),
            LoggingTape(inner),
        ):
            pass
    with LoggingTape(module) as logs:
        module(tf.constant(1.0))
    assert set(logs) == {"a", "whole"}


def test_tapes_of_several_modules_and_dictionaries_without_a_tape():
    """Guards what existing programs use; a tape that fails to open leaves no module taped."""
    modules, logs = (Whole("a"), Part("b")), {}
    modules[1].set_logging_dict(logs)
    with pytest.raises(ModuleAlreadyTapedError), LoggingTape(modules):
        pass
    modules[1](tf.constant(1.0))
    modules[1].unset_logging_dict()
    assert list(logs) == ["b"]
    with LoggingTape(tracked_modules=modules) as logs:
        _ = [module(tf.constant(1.0)) for module in modules]
    assert set(logs) == {"whole", "a", "b"}


def test_in_a_loop_within_a_function():
    """Guards collecting within the body of a loop, whose tensors are of another graph."""
    module = Whole("a")

    def body(i, total):
        with LoggingTape(module) as logs:
            module(tf.cast(i, tf.float32))
            return i + 1, total + logs["a"]

    @tf.function(autograph=False)
    def run():
        return tf.while_loop(lambda i, _: i < 5, body, (tf.constant(0), tf.constant(0.0)))

    assert float(run()[1]) == 10.0


def test_no_gradient_and_no_checkpointed_values(tmp_path):
    """Guards gradients against logging, and checkpoints against logged tensors."""
    module = Part("a")
    x = tf.Variable(2.0)
    with tf.GradientTape() as tape, LoggingTape(module) as logs:
        module(x * 1)
        logged = logs["a"]
        path = tf.train.Checkpoint(module=module).write(str(tmp_path / "checkpoint"))
    assert tape.gradient(logged, x) is None
    assert [name for name, _ in tf.train.list_variables(path) if "module" in name] == []


def test_threads_have_tapes_of_their_own():
    """Each replica of a training strategy has a thread, and all of them are within the loss."""
    module = Whole("a")
    opened = threading.Barrier(2, timeout=60)

    def record(value):
        with LoggingTape(module) as logs:
            opened.wait()
            module(tf.constant(value))
            opened.wait()
        return {key: float(log) for key, log in logs.items()}

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert list(pool.map(record, (1.0, 5.0))) == [{"a": 1.0, "whole": 2.0}] + [
            {"a": 5.0, "whole": 6.0}
        ]
