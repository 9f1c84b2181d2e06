"""The parts of the training benchmark and their measurement.

Each is measured in its own process: `python -m benchmarks.training --part=NAME`.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable
from typing import Any

NUM_ENVS = 16


@dataclasses.dataclass(frozen=True)
class Workload:
    """What is trained.

    Attributes:
      about: description.
      agent: `vtrace` or `r2d2`; `seed_rl.atari.AGENT_main` is run.
      network: network flags.
      unroll_length: steps per unroll.
      batch_size: unrolls per training step.
      flags: further flags.
      samples: how often each transition is trained on.
    """

    about: str
    agent: str
    network: dict[str, Any]
    unroll_length: int
    batch_size: int
    flags: dict[str, Any] = dataclasses.field(default_factory=dict)
    samples: float = 1.0


_NATURE = {"torso": "nature", "stack_size": 4}
_DEEP = {"torso": "impala_deep", "lstm_sizes": (256,), "stack_size": 4}
_R2D2 = {"torso": "nature", "lstm_size": 512, "stack_size": 4}
# A small replay that never runs empty; its size hardly affects speed. Neither acting nor training
# may run ahead, or the measured window would contain less of one than of the other.
_REPLAY: dict[str, Any] = {
    "replay_buffer_size": 2000,
    "replay_buffer_min_size": 64,
    "replay_ratio": 1.0,
    "replay_ratio_slack": 16,
}

WORKLOADS = {
    "W1": Workload(
        "V-trace, Nature CNN, unroll 20, batch 32, 16 environments", "vtrace", _NATURE, 20, 32
    ),
    "W2": Workload(
        "V-trace, IMPALA deep network with LSTM 256, unroll 20, batch 32, 16 environments",
        "vtrace",
        _DEEP,
        20,
        32,
    ),
    "W3": Workload(
        "R2D2, Nature CNN with LSTM 512, unroll 40, burn-in 20, batch 16, 16 environments, "
        "each transition trained on once",
        "r2d2",
        _R2D2,
        40,
        16,
        {"burn_in": 20, **_REPLAY},
    ),
}
"""All workloads play Pong."""


def measure_env(args: argparse.Namespace) -> float:
    """Measures stepping the games of one actor."""
    import numpy as np

    from seed_rl.atari import env

    per_actor = NUM_ENVS // args.actors
    environment = env.create_vector_environment(np.arange(per_actor), env.AtariConfig())
    environment.reset(seed=1)
    generator = np.random.default_rng(1)
    actions = generator.integers(0, environment.action_space.n, [10_000, per_actor])
    step = iter(range(10_000_000))
    return (
        _cpu_us(lambda: environment.step(actions[next(step) % 10_000]), args.part_seconds)
        / per_actor
    )


def measure_infer(args: argparse.Namespace) -> float:
    """Measures the network's part of inference, for a batch of all environments on one thread."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    algorithm, specs, _ = _algorithm(args)
    inputs = _zeros([NUM_ENVS], (specs.action, specs.env_output))
    state = algorithm.network.initial_state(NUM_ENVS)
    env_ids = tf.range(NUM_ENVS)

    @tf.function(autograph=False)
    def act() -> Any:
        return algorithm.act(algorithm.network, env_ids, *inputs, state).action

    return _cpu_us(act, args.part_seconds) / NUM_ENVS


def measure_train(args: argparse.Namespace) -> float:
    """Measures a training step on unrolls of zeros."""
    import tensorflow as tf

    from seed_rl.common.config.optimizer_config import OptimizerConfig
    from seed_rl.common.learner.optimizer import create_optimizer
    from seed_rl.common.learner.training import TrainingStep

    workload = WORKLOADS[args.workload]
    algorithm, specs, strategy = _algorithm(args)
    make_batch = _r2d2_batch if workload.agent == "r2d2" else _vtrace_batch
    batch = make_batch(workload, algorithm, specs)
    with strategy.scope():
        optimizer, _ = create_optimizer(OptimizerConfig(), 1000)
    training = TrainingStep(algorithm, optimizer, strategy, OptimizerConfig().clip_norm)
    dataset = strategy.distribute_datasets_from_function(
        lambda _: tf.data.Dataset.from_tensors(batch).repeat()
    )
    iterator = iter(dataset)
    transitions = workload.batch_size * workload.unroll_length / workload.samples
    return _cpu_us(lambda: training(iterator), args.part_seconds) / transitions


PARTS: dict[str, Callable[[argparse.Namespace], float]] = {
    "env": measure_env,
    "infer": measure_infer,
    "train": measure_train,
}
"""Functions that return core-microseconds per transition, by part."""


def _zeros(leading: list[int], specs: Any) -> Any:
    import tensorflow as tf

    return tf.nest.map_structure(lambda s: tf.zeros([*leading, *s.shape], s.dtype), specs)


def _vtrace_batch(workload: Workload, algorithm: Any, specs: Any) -> Any:
    """An `Unroll` of zeros with the network's outputs for them."""
    import tensorflow as tf

    from seed_rl.common.types import Unroll

    batch, steps = workload.batch_size, workload.unroll_length + 1
    state = algorithm.network.initial_state(batch)
    step_specs = (specs.action, specs.env_output)
    acted = algorithm.act(algorithm.network, tf.range(batch), *_zeros([batch], step_specs), state)
    outputs = tf.nest.map_structure(
        lambda t: tf.repeat(t[tf.newaxis], steps, 0), acted.agent_outputs
    )
    prev_actions, env_outputs = _zeros([steps, batch], step_specs)
    return Unroll(state, prev_actions, env_outputs, outputs)


def _r2d2_batch(workload: Workload, algorithm: Any, specs: Any) -> Any:
    """`SampledUnrolls` of zeros."""
    import tensorflow as tf

    from seed_rl.common.learner.replay_pipeline import SampledUnrolls
    from seed_rl.common.types import Unroll

    batch = workload.batch_size
    steps = workload.flags["burn_in"] + workload.unroll_length + 1
    state = algorithm.network.initial_state(batch)
    prev_actions, env_outputs = _zeros([steps, batch], (specs.action, specs.env_output))
    unrolls = Unroll(state, prev_actions, env_outputs, tf.zeros([steps, batch], tf.int32))
    return SampledUnrolls(unrolls, tf.zeros([batch], tf.int64), tf.ones([batch]))


def _algorithm(args: argparse.Namespace) -> Any:
    """Returns (algorithm as created by the learner, specs, training strategy)."""
    from seed_rl.atari import env
    from seed_rl.common.config.device_config import DeviceConfig
    from seed_rl.common.inference import env_specs, inference
    from seed_rl.common.learner import devices

    workload = WORKLOADS[args.workload]
    strategy = devices.make_devices(DeviceConfig()).training_strategy
    spaces = env_specs.probe_spaces(env.create_environment, env.AtariConfig())
    specs = env_specs.specs(*spaces)
    make = _r2d2 if workload.agent == "r2d2" else _vtrace
    with strategy.scope():
        algorithm = make(workload, args.compute_dtype, spaces, specs)
        inference.initialize(algorithm, algorithm.network, specs)
    return algorithm, specs, strategy


def _vtrace(workload: Workload, compute_dtype: str, spaces: Any, specs: Any) -> Any:
    from seed_rl.agents.vtrace.algorithm import VTrace
    from seed_rl.agents.vtrace.config import VTraceConfig
    from seed_rl.common.config.network_config import ConvNetworkConfig
    from seed_rl.common.distributions.spaces import get_parametric_distribution_for_action_space
    from seed_rl.common.networks.network_factory import create_network

    del specs
    network = ConvNetworkConfig(**workload.network, compute_dtype=compute_dtype)
    distribution = get_parametric_distribution_for_action_space(spaces.action)
    return VTrace(
        VTraceConfig(),
        lambda: create_network(spaces.observation, distribution, network),
        distribution,
        NUM_ENVS,
    )


def _r2d2(workload: Workload, compute_dtype: str, spaces: Any, specs: Any) -> Any:
    from seed_rl.agents.r2d2.algorithm import R2D2
    from seed_rl.agents.r2d2.config import QNetworkConfig, R2D2Config
    from seed_rl.agents.r2d2.networks import create_network
    from seed_rl.common.replay import ReplayConfig

    network = QNetworkConfig(**workload.network, compute_dtype=compute_dtype)
    return R2D2(
        R2D2Config(burn_in=workload.flags["burn_in"]),
        ReplayConfig(**_REPLAY),
        lambda: create_network(specs.env_output, int(spaces.action.n), network),
        specs,
        spaces.action,
        workload.unroll_length,
        NUM_ENVS,
    )


def _cpu_us(action: Any, seconds: float) -> float:
    """CPU time of this process per call in microseconds, median over half-second windows."""
    for _ in range(3):
        action()
    windows = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        calls, began, cpu = 0, time.monotonic(), time.process_time()
        while time.monotonic() - began < 0.5:
            action()
            calls += 1
        windows.append((time.process_time() - cpu) / calls * 1e6)
    return sorted(windows)[len(windows) // 2]
