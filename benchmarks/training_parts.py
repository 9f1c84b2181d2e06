"""The parts of the training benchmark and their measurement.

`python -m benchmarks.training` measures each in a process of its own.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from benchmarks.workloads import Workload, chosen


def measure_env(args: argparse.Namespace) -> float:
    """Measures stepping all environments of the run in one process.

    However they are distributed, they have to share the caches: one of 256 MuJoCo environments
    takes a third longer to step than one of 32.
    """
    from gymnasium.vector.utils import batch_space

    workload = chosen(args)
    env = environments(workload)
    env.reset(seed=1)
    space = batch_space(env.action_space, workload.num_envs)
    space.seed(1)
    actions = [space.sample() for _ in range(100)]
    step = iter(range(10_000_000))
    return (
        _us(lambda: env.step(actions[next(step) % len(actions)]), args.part_seconds)
        / workload.num_envs
    )


def measure_infer(args: argparse.Namespace) -> float:
    """Measures the network's part of inference, for a batch of all environments.

    On one thread, or on an accelerator.
    """
    import tensorflow as tf

    from benchmarks import training_agents

    if tf.config.list_physical_devices() == tf.config.list_physical_devices("CPU"):
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    workload = chosen(args)
    algorithm, specs, _ = training_agents.create(workload, args.compute_dtype)
    inputs = training_agents.zeros([workload.num_envs], (specs.action, specs.env_output))
    state = algorithm.network.initial_state(workload.num_envs)
    env_ids = tf.range(workload.num_envs)

    @tf.function(autograph=False)
    def act() -> Any:
        return algorithm.act(algorithm.network, env_ids, *inputs, state).action

    def fetch() -> None:
        """As in the server, where actions leave the device before the next batch starts."""
        tf.nest.map_structure(lambda action: action.numpy(), act())

    if on_accelerator():
        return _us(fetch, args.part_seconds, time.perf_counter) / workload.num_envs
    return _us(act, args.part_seconds) / workload.num_envs


def measure_train(args: argparse.Namespace) -> float:
    """Measures a training step."""
    import tensorflow as tf

    from benchmarks import training_agents
    from seed_rl.common.config.optimizer_config import OptimizerConfig
    from seed_rl.common.learner.optimizer import create_optimizer
    from seed_rl.common.learner.training import TrainingStep

    workload = chosen(args)
    agent = training_agents.create(workload, args.compute_dtype)
    batch = training_agents.batch(workload, agent)
    algorithm, _, strategy = agent
    with strategy.scope():
        optimizer, _ = create_optimizer(1000, OptimizerConfig())
    clip_norm = OptimizerConfig().clip_norm
    training = TrainingStep(algorithm, optimizer, strategy, clip_norm, jit=args.jit)
    dataset = strategy.distribute_datasets_from_function(
        lambda _: tf.data.Dataset.from_tensors(batch).repeat()
    )
    iterator = iter(dataset)
    transitions = workload.unrolls_per_step * workload.unroll_length

    def step() -> None:
        training.run(iterator)

    if on_accelerator():
        sync = tf.test.experimental.sync_devices
        return _us(step, args.part_seconds, time.perf_counter, sync) / transitions
    return _us(step, args.part_seconds) / transitions


PARTS: dict[str, Callable[[argparse.Namespace], float]] = {
    "env": measure_env,
    "infer": measure_infer,
    "train": measure_train,
}
"""Functions that return microseconds per transition, by part: of a core, or of the accelerator."""


def environments(workload: Workload) -> Any:
    """A `BatchedEnv` of all environments of the run."""
    import numpy as np

    from seed_rl.common.acting.batched_env import BatchedEnvironment
    from seed_rl.common.config.options import from_values

    family = workload.environments()
    config: Any = from_values(family.config, workload.env)
    if family.create_batch is not None:
        env = family.create_batch(np.arange(workload.num_envs), config)
        if env is not None:
            return env
    return BatchedEnvironment(family.create, workload.num_envs, 0, config)


def on_accelerator() -> bool:
    """Whether TensorFlow computes on a GPU or TPU; the parts are then measured in wall time."""
    import tensorflow as tf

    return len(tf.config.list_logical_devices()) > len(tf.config.list_logical_devices("CPU"))


def _us(
    action: Any,
    seconds: float,
    clock: Callable[[], float] = time.process_time,
    finish: Callable[[], Any] = lambda: None,
) -> float:
    """Microseconds of `clock` per call, median over half-second windows.

    Args:
      action: what is measured.
      seconds: for how long.
      clock: by default the CPU time of this process.
      finish: waits for what the calls have queued.
    """
    for _ in range(3):
        action()
    windows = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        finish()
        calls, began, start = 0, time.monotonic(), clock()
        while time.monotonic() - began < 0.5:
            action()
            calls += 1
        finish()
        windows.append((clock() - start) / calls * 1e6)
    return sorted(windows)[len(windows) // 2]
