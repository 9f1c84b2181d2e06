"""Places agents, infers and limits threads on logical CPU devices.

devices_program.py FUNCTION ...
"""

import sys
import threading
import time

import numpy as np
import tensorflow as tf
from gymnasium import spaces

from seed_rl.agents.vtrace.algorithm import VTrace
from seed_rl.agents.vtrace.config import VTraceConfig
from seed_rl.agents.vtrace.networks import MLPandLSTM
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.inference.inference import CentralInference
from seed_rl.common.learner import devices, variables
from seed_rl.common.parametric_distribution import categorical_distribution
from tests.helpers.contexts import context
from tests.helpers.in_process import values
from tests.helpers.logical_devices import make_cpus


class Agent(tf.Module):
    def __init__(self):
        super().__init__()
        self._layers = [tf.keras.layers.Dense(8, "tanh"), tf.keras.layers.Dense(1)]

    def __call__(self, inputs):
        for layer in self._layers:
            inputs = layer(inputs)
        return inputs


def made(chosen):
    """An agent with variables on the devices that train."""
    with chosen.training_strategy.scope():
        agent = Agent()
        agent(tf.zeros([1, 3]))
    return agent


def training_threads():
    for threads in (3, 5):  # The second comes too late.
        devices.make_devices(DeviceConfig(training_threads=threads))
        assert tf.config.threading.get_inter_op_parallelism_threads() == 3
        assert tf.config.threading.get_intra_op_parallelism_threads() == 3


def devices_that_train():
    single = devices.make_devices(DeviceConfig())
    assert isinstance(single.training_strategy, tf.distribute.OneDeviceStrategy)
    mirrored = devices.make_devices(
        DeviceConfig(inference_devices="cpu:0", training_devices="cpu:1,cpu:2,cpu:3")
    )
    assert mirrored.training_strategy.num_replicas_in_sync == 3
    assert mirrored.inference_devices == ["/device:CPU:0"]


def inference_gets_the_newest_weights():
    chosen = devices.make_devices(
        DeviceConfig(inference_devices="cpu:0,cpu:1", training_devices="cpu:2,cpu:3")
    )
    agent = made(chosen)
    functions = []
    inputs = tf.constant(np.random.default_rng(0).normal(size=[4, 3]), tf.float32)
    stop = threading.Event()
    errors = []
    inferences = [0, 0]

    def keep_inferring(number):
        try:
            while not stop.is_set():
                assert np.all(np.isfinite(functions[number]().numpy()))
                inferences[number] += 1
        except BaseException as error:
            errors.append(error)
            raise

    others = []
    for device, other in chosen.place_inference(agent, Agent):
        with tf.device(device):
            assert other is not agent
            other(inputs)
        others.append(other)
        functions.append(tf.function(lambda other=other: other(inputs)))
        assert all(device in v.device for v in variables.variables(other))
    threads = [threading.Thread(target=keep_inferring, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    copy = tf.function(lambda: devices.copy_variables(agent, others))
    for _ in range(20):
        for variable in variables.variables(agent):
            variable.assign_add(tf.random.normal(variable.shape))
        copy()
        for other in others:
            for new, old in zip(values(other), values(agent), strict=True):
                np.testing.assert_array_equal(new, old)
    while min(inferences) == 0 and not errors:
        time.sleep(0.01)
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors
    with tf.device("/device:CPU:2"):
        expected = agent(inputs).numpy()
    for function in functions:
        # Older weights differ by about 1, sums near 0 by their rounding.
        np.testing.assert_allclose(function().numpy(), expected, rtol=1e-5, atol=1e-5)
    try:
        devices.copy_variables(agent, [Agent()])  # Never called: it has no variables yet.
    except ValueError as error:
        assert "called once" in str(error)
    else:
        raise AssertionError("copied to an agent without variables")


def one_device_shares_its_agent():
    chosen = devices.make_devices()
    assert list(chosen.inference_devices) == ["/device:CPU:0"]
    agent = made(chosen)
    assert chosen.place_inference(agent, Agent) == [("/device:CPU:0", agent)]
    assert chosen.decode(chosen.encode(3)) == 3


def drawn_actions(seed):
    """What each of two inference devices draws for the same inputs, <int>[device, call, env]."""
    tf.keras.utils.set_random_seed(seed)
    chosen = devices.make_devices(
        DeviceConfig(inference_devices="cpu:0,cpu:1", training_devices="cpu:2")
    )
    distribution = categorical_distribution(1000, tf.int64)
    algorithm = VTrace(
        VTraceConfig(),
        context(
            lambda: MLPandLSTM(distribution, [4], []),
            distribution,
            actions=spaces.Discrete(1000),
            num_envs=64,
        ),
    )
    spec = algorithm.specs
    inference = CentralInference(
        algorithm,
        spec,
        chosen.place_inference(algorithm.network, algorithm.make_network),
        num_envs=64,
        unroll_length=5,
        queue_capacity=100,
    )
    zeros = tf.nest.map_structure(lambda s: tf.zeros([32, *s.shape], s.dtype), spec.env_output)
    return np.array(
        [
            [
                function(
                    *(tf.range(32) + 32 * i, tf.ones([32], tf.int64)),
                    *(zeros, tf.zeros([32]), tf.zeros([32])),
                )
                for _ in range(3)
            ]
            for i, function in enumerate(inference.functions)
        ]
    )


def inference_devices_draw_differently():
    first, second = drawn_actions(seed=7)
    # Of 1,000 about equally likely actions, hardly any is the same by chance.
    assert np.mean(first == second) < 0.1, np.mean(first == second)
    assert np.mean(first[0] == first[1]) < 0.1, "an environment repeats itself"
    np.testing.assert_array_equal(drawn_actions(seed=7), [first, second])
    assert np.mean(drawn_actions(seed=8) == [first, second]) < 0.1
    assert np.mean(drawn_actions(seed=8)[0] == second) < 0.1, "seeds are those of neighbours"


if __name__ == "__main__":
    make_cpus(4)
    for name in sys.argv[1:]:
        globals()[name]()
