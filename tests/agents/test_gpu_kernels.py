"""V-trace, R2D2 and PPO compute frames on a GPU by ops with GPU kernels.

Whether there is one is known without a GPU: this TensorFlow registers them. An op without one runs
on the host, to which its inputs are copied; selecting frames there took several times as long as
all else of inference. Kernels that keep int32 on the host, such as those of shapes, pass.
"""

import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels

from benchmarks import training_agents
from benchmarks.workloads import WORKLOADS
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.learner.optimizer import create_optimizer
from seed_rl.common.learner.training import TrainingStep

_NO_WORK = {"Const", "NoOp", "Placeholder", "ReadVariableOp"}
_SMALL = {"RandomShuffle"}  # Numbers of a batch's rows.

pytestmark = pytest.mark.skipif(
    not any(k.device_type == "GPU" for k in kernels.get_registered_kernels_for_op("MatMul").kernel),
    reason="This TensorFlow is built without GPUs.",
)


def _fits(kernel, node):
    """Whether a kernel is for the types of a node."""
    for constraint in kernel.constraint:
        value = node.attr[constraint.name]
        types = {*value.list.type, value.type} - {0}
        if not types <= set(constraint.allowed_values.list.type):
            return False
    return True


def _on_the_host(function):
    """The ops of a concrete function without a kernel for GPUs, with their types."""
    graph = function.graph.as_graph_def()
    nodes = [*graph.node, *(node for called in graph.library.function for node in called.node_def)]
    found = set()
    for node in nodes:
        fitting = [k for k in kernels.get_registered_kernels_for_op(node.op).kernel]
        devices = {kernel.device_type for kernel in fitting if _fits(kernel, node)}
        if devices and not devices & {"GPU", "DEFAULT"} and node.op not in _NO_WORK | _SMALL:
            types = [tf.as_dtype(v.type).name for _, v in sorted(node.attr.items()) if v.type]
            found.add(f"{node.op} of {', '.join(types)}")
    return found


def _act(agent):
    algorithm, specs, _ = agent
    inputs = training_agents.zeros([4], (specs.action, specs.env_output))
    state = algorithm.network.initial_state(4)

    @tf.function(autograph=False)
    def act(env_ids, inputs, state):
        return algorithm.act(algorithm.network, env_ids, *inputs, state)

    return act.get_concrete_function(tf.range(4), inputs, state)


def _train(workload, agent):
    with agent.strategy.scope():
        optimizer, _ = create_optimizer(1000, OptimizerConfig())
    step = TrainingStep(agent.algorithm, optimizer, agent.strategy, 40.0, jit="true")
    batch = training_agents.batch(workload, agent)
    traced = tf.function(step._step, autograph=False).get_concrete_function(batch)
    assert step._compiled  # XLA would change none of its ops.
    return traced


@pytest.mark.parametrize("name", ["W2", "W3", "W5", "W6", "W7"])
def test_on_a_gpu_nothing_is_left_to_the_host(name):
    """Guards acting and compiled training, on frames, stacks of them, and vectors."""
    workload = WORKLOADS[name]
    agent = training_agents.create(workload, "bfloat16" if workload.network else "float32")
    assert not _on_the_host(_act(agent))
    assert not _on_the_host(_train(workload, agent))


@pytest.mark.parametrize(
    ("name", "on_cpu"), [("W1", False), ("W3", False), ("W5", True), ("W6", False)]
)
def test_steps_are_compiled_where_it_pays(name, on_cpu):
    """Guards the default of --jit: on a GPU any agent's, on a CPU PPO's without convolutions."""
    algorithm, _, _ = training_agents.create(WORKLOADS[name], "float32")
    assert algorithm.jit_pays("GPU")
    assert algorithm.jit_pays("CPU") == on_cpu
    assert not algorithm.jit_pays("TPU")
