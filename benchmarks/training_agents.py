"""The agents of the training benchmark as their learners create them, and batches to train on."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import tensorflow as tf

from benchmarks.workloads import REPLAY, Workload
from seed_rl.agents.policy_gradient import algorithm as ppo
from seed_rl.agents.policy_gradient import gin_config, gin_options
from seed_rl.agents.policy_gradient import program as ppo_program
from seed_rl.agents.policy_gradient.config import MinibatchSettings, OnPolicyConfig
from seed_rl.agents.r2d2 import algorithm as r2d2
from seed_rl.agents.r2d2 import networks as r2d2_networks
from seed_rl.agents.r2d2.config import QNetworkConfig, R2D2Config
from seed_rl.agents.vtrace import algorithm as vtrace
from seed_rl.agents.vtrace.config import VTraceConfig
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.network_config import ConvNetworkConfig
from seed_rl.common.config.options import from_values
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.inference import inference
from seed_rl.common.learner.job import TrainingJob
from seed_rl.common.learner.replay_pipeline import SampledUnrolls
from seed_rl.common.networks.network_factory import create_network
from seed_rl.common.replay import ReplayConfig
from seed_rl.common.types import Specs, Unroll


class Agent(NamedTuple):
    """An agent.

    Attributes:
      algorithm: as created by the learner.
      specs: of one environment.
      strategy: training strategy.
    """

    algorithm: Any
    specs: Specs
    strategy: tf.distribute.Strategy


def create(workload: Workload, compute_dtype: str) -> Agent:
    """The agent that a workload's learner trains."""
    create_job = {"vtrace": _vtrace_job, "r2d2": _r2d2_job, "ppo": _ppo_job}[workload.agent]
    job = create_job(workload, compute_dtype)
    agent = Agent(job.algorithm, job.specs, job.devices.training_strategy)
    with agent.strategy.scope():
        inference.initialize(agent.algorithm, agent.algorithm.network, agent.specs)
    return agent


def batch(workload: Workload, agent: Agent) -> Any:
    """A batch to train on, of the type that the algorithm's `dataset` gives."""
    make = {"vtrace": _vtrace_batch, "r2d2": _r2d2_batch, "ppo": _ppo_batch}[workload.agent]
    return make(workload, agent)


def zeros(leading: list[int], specs: Any) -> Any:
    """Zeros of the shapes of `specs`, a nest, after the `leading` dimensions."""
    return tf.nest.map_structure(lambda s: tf.zeros([*leading, *s.shape], s.dtype), specs)


def _environment_and_run(workload: Workload) -> dict[str, Any]:
    """Arguments of all agents' `create_job`."""
    family = workload.environments()
    return dict(
        create_env_fn=family.create,
        env_config=from_values(family.config, workload.env),
        run=RunConfig(num_envs=workload.num_envs),
    )


def _vtrace_job(workload: Workload, compute_dtype: str) -> TrainingJob:
    network = ConvNetworkConfig(**workload.network, compute_dtype=compute_dtype)
    return vtrace.create_job(
        create_agent_fn=lambda _, space, distribution: create_network(space, distribution, network),
        vtrace=VTraceConfig(),
        config=LearnerConfig(unroll_length=workload.unroll_length),
        device_config=DeviceConfig(),
        **_environment_and_run(workload),
    )


def _r2d2_job(workload: Workload, compute_dtype: str) -> TrainingJob:
    network = QNetworkConfig(**workload.network, compute_dtype=compute_dtype)
    return r2d2.create_job(
        create_agent_fn=lambda actions, space, _: r2d2_networks.create_network(
            space, int(actions.n), network
        ),
        r2d2=R2D2Config(burn_in=workload.flags["burn_in"]),
        replay=ReplayConfig(**REPLAY),
        config=LearnerConfig(unroll_length=workload.unroll_length),
        device_config=DeviceConfig(),
        **_environment_and_run(workload),
    )


def _ppo_job(workload: Workload, compute_dtype: str) -> TrainingJob:
    """Of the agent that the program's preset describes, in the sizes of the workload."""
    preset = importlib.import_module(workload.program).PRESET
    sizes = {"unroll_length": workload.unroll_length, "batch_size": workload.batch_size}
    # As in the program, where sizes in unrolls replace a preset's in transitions.
    unset = {"step_size_transitions": None, "batch_size_transitions": None}
    options = {**preset.values, **workload.network, **workload.flags, **unset, **sizes}
    options["compute_dtype"] = compute_dtype
    gin_config.load(options["gin_config"])
    gin_options.settle(gin_options.of_preset(options))
    return ppo.create_job(
        create_agent_fn=ppo_program.create_agent,
        create_loss=gin_config.create_loss,
        on_policy=from_values(OnPolicyConfig, options),
        settings=from_values(MinibatchSettings, options),
        continuous=gin_config.continuous_action_config(),
        optimizer=gin_config.optimizer_config(),
        config=from_values(LearnerConfig, options),
        device_config=from_values(DeviceConfig, options),
        **_environment_and_run(workload),
    )


def _vtrace_batch(workload: Workload, agent: Agent) -> Unroll:
    """Zeros, with the network's outputs for them."""
    algorithm, specs, _ = agent
    batch, steps = workload.batch_size, workload.unroll_length + 1
    state = algorithm.network.initial_state(batch)
    step_specs = (specs.action, specs.env_output)
    acted = algorithm.act(algorithm.network, tf.range(batch), *zeros([batch], step_specs), state)
    outputs = tf.nest.map_structure(
        lambda t: tf.repeat(t[tf.newaxis], steps, 0), acted.agent_outputs
    )
    prev_actions, env_outputs = zeros([steps, batch], step_specs)
    return Unroll(state, prev_actions, env_outputs, outputs)


def _ppo_batch(workload: Workload, agent: Agent) -> Unroll:
    """Normal rewards; normal observations, or noise for images; actions as the policy samples them.

    Ratios of probabilities are 1 at first, and move from there as in a real training step.
    """
    algorithm, specs, _ = agent
    batch, steps = workload.unrolls_per_step, workload.unroll_length + 1
    rows = batch * steps
    prev_actions, env_outputs = zeros([rows], (specs.action, specs.env_output))
    observation = env_outputs.observation
    if observation.dtype.is_integer:
        noise = tf.random.uniform(observation.shape, maxval=256, dtype=tf.int32, seed=1)
        noise = tf.cast(noise, observation.dtype)
    else:
        noise = tf.random.normal(observation.shape, seed=1)
    env_outputs = env_outputs._replace(
        observation=noise,
        reward=tf.random.normal([rows], seed=2),
    )
    state = algorithm.network.initial_state(rows)
    acted = algorithm.act(algorithm.network, tf.range(rows), prev_actions, env_outputs, state)
    per_step = tf.nest.map_structure(
        lambda t: tf.reshape(t, [steps, batch, *t.shape[1:]]),
        (prev_actions, env_outputs, acted.agent_outputs),
    )
    return Unroll(algorithm.network.initial_state(batch), *per_step)


def _r2d2_batch(workload: Workload, agent: Agent) -> Any:
    """`SampledUnrolls` of zeros."""
    algorithm, specs, _ = agent
    batch = workload.batch_size
    steps = workload.flags["burn_in"] + workload.unroll_length + 1
    state = algorithm.network.initial_state(batch)
    prev_actions, env_outputs = zeros([steps, batch], (specs.action, specs.env_output))
    unrolls = Unroll(state, prev_actions, env_outputs, tf.zeros([steps, batch], tf.int32))
    return SampledUnrolls(unrolls, tf.zeros([batch], tf.int64), tf.ones([batch]))
