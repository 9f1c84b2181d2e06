"""Trains an agent on REPLICAS logical devices (a program of test_replicas.py).

    replicas_program.py AGENT REPLICAS [JIT]

The parts of its batches differ strongly in the number of unmasked steps, in importance weights and
in rewards. Prints weights and metrics after some steps as JSON.
"""

import json
import sys

import numpy as np
import tensorflow as tf
from absl import flags
from gymnasium import spaces

from examples import ppo
from seed_rl.agents.policy_gradient import gin_config
from seed_rl.agents.policy_gradient.algorithm import PolicyGradient
from seed_rl.agents.policy_gradient.config import MinibatchSettings
from seed_rl.agents.policy_gradient.modules.continuous_control_agent import ContinuousControlAgent
from seed_rl.agents.pqn.algorithm import PQN
from seed_rl.agents.pqn.config import PQNConfig
from seed_rl.agents.pqn.networks import QNetwork
from seed_rl.agents.r2d2.algorithm import R2D2
from seed_rl.agents.r2d2.config import QNetworkConfig, R2D2Config
from seed_rl.agents.r2d2.networks import create_network
from seed_rl.agents.sac.algorithm import SAC
from seed_rl.agents.sac.config import SACConfig, SACNetworkConfig
from seed_rl.agents.sac.networks import create_network as create_sac_network
from seed_rl.agents.vtrace.algorithm import VTrace
from seed_rl.agents.vtrace.config import VTraceConfig
from seed_rl.agents.vtrace.networks import AgentOutput, MLPandLSTM
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.network_config import MLPNetworkConfig
from seed_rl.common.inference import env_specs
from seed_rl.common.inference.inference import initialize
from seed_rl.common.learner.devices import copy_variables, make_devices, through_tf_data
from seed_rl.common.learner.replay_pipeline import SampledUnrolls
from seed_rl.common.learner.training import TrainingStep
from seed_rl.common.networks import network_factory
from seed_rl.common.normalization.normalizer import NormalizeObservationsWrapper, Normalizer
from seed_rl.common.parametric_distribution import (
    categorical_distribution,
    deterministic_tanh_distribution,
)
from seed_rl.common.replay import ReplayConfig
from seed_rl.common.types import EnvOutput, Unroll
from tests.helpers import on_policy_runs
from tests.helpers.contexts import context
from tests.helpers.logical_devices import make_replicas

BATCH, STEPS, ACTIONS = 8, 4, 3
DISCRETE = categorical_distribution(ACTIONS, tf.int64)
OBSERVATIONS = spaces.Box(-1.0, 1.0, (4,), np.float32)


def make_context(create_network, distribution=None, actions=None):
    config = LearnerConfig(unroll_length=STEPS)
    actions = actions or spaces.Discrete(ACTIONS)
    return context(create_network, distribution, OBSERVATIONS, actions, config, num_envs=2)


def random_batch(rng, name, algorithm):
    """What the agent trains on. Of its first half hardly anything is real, of the other all."""
    shape = (STEPS + 1, BATCH)
    abandoned = np.zeros(shape, np.bool_)
    abandoned[1:, : BATCH // 2] = True
    abandoned[2, 1] = False
    env_outputs = EnvOutput(
        (rng.normal(size=shape) * np.linspace(0.1, 3.0, BATCH)).astype(np.float32),
        abandoned,
        rng.normal(size=(*shape, 4)).astype(np.float32),
        abandoned,
        np.zeros(shape, np.int32),
    )
    prev_actions, actions = rng.integers(0, ACTIONS, (2, *shape), np.int32)
    outputs = actions
    if name == "sac":
        prev_actions, outputs = rng.uniform(-1.0, 1.0, (2, *shape, 2)).astype(np.float32)
    elif name != "r2d2":
        logits = rng.normal(size=(*shape, ACTIONS)).astype(np.float32)
        outputs = AgentOutput(actions, logits, np.zeros(shape, np.float32))
    state = tf.nest.map_structure(lambda t: t.numpy(), algorithm.network.initial_state(BATCH))
    unrolls = Unroll(state, prev_actions, env_outputs, outputs)
    if name not in ("r2d2", "sac"):
        return unrolls
    weights = np.geomspace(0.05, 8.0, BATCH).astype(np.float32)
    return SampledUnrolls(unrolls, np.arange(BATCH), weights)


def part(batch, number, replicas):
    """A replica's share; unrolls are batched in the second dimension, all else in the first."""
    share = slice(BATCH * number // replicas, BATCH * (number + 1) // replicas)

    def cut(nest, index):
        return tf.nest.map_structure(lambda t: tf.constant(t[index]), nest)

    unrolls, *rest = batch if isinstance(batch, SampledUnrolls) else [batch]
    steps = cut(unrolls._replace(agent_state=()), np.s_[:, share])
    unrolls = steps._replace(agent_state=cut(unrolls.agent_state, share))
    return SampledUnrolls(unrolls, *cut(rest, share)) if rest else unrolls


def make_ppo():
    """One minibatch: random ones differ from one division of the batch to another."""
    flags.FLAGS(["program"])
    algorithm = make_vtrace(ppo.algorithm())
    algorithm.ppo = ppo.PPOConfig(epochs=3, minibatches=1)
    return algorithm


def make_policy_gradient():
    """One minibatch, for the same reason; with statistics of observations and of targets.

    The weight on the entropy is adjusted. The second epoch computes its advantages anew, after the
    first has moved weights and statistics.
    """
    on_policy_runs.load(
        "seed_rl/mujoco/gin/ppo.gin",
        [
            "GeneralizedOnPolicyLoss.regularizer = @KLPolicyRegularizer()",
            "KLPolicyRegularizer.entropy = @LagrangeInequalityCoefficient()",
            "LagrangeInequalityCoefficient.threshold = -0.5",
            "KLPolicyRegularizer.kl_mu_pi = 0.1",
            "ContinuousControlAgent.num_layers_policy = 1",
            "ContinuousControlAgent.num_layers_value = 1",
            "ContinuousControlAgent.num_units_policy = 8",
            "ContinuousControlAgent.num_units_value = 8",
        ],
    )
    return PolicyGradient(
        MinibatchSettings("repeat", epochs_per_step=2),
        gin_config.create_loss,
        make_context(lambda: ContinuousControlAgent(DISCRETE), DISCRETE),
    )


def make_pqn():
    """One minibatch, for the same reason."""
    network = MLPNetworkConfig(mlp_sizes=(8,))

    def create_agent():
        return network_factory.create_network(
            OBSERVATIONS, DISCRETE, None, network, layer_norm=True, network=QNetwork
        )

    settings = MinibatchSettings("split", epochs_per_step=2)
    return PQN(PQNConfig(), settings, make_context(create_agent, DISCRETE))


def make_vtrace(algorithm_class=VTrace, wrap=lambda network: network, **options):
    config = VTraceConfig(entropy_cost=0.1, target_entropy=0.5, kl_cost=0.1, **options)

    def create_agent():
        return wrap(MLPandLSTM(DISCRETE, [8], []))

    return algorithm_class(config, make_context(create_agent, DISCRETE))


def make_r2d2():
    """Losses after the first step depend on the copy of the weights in the target network."""
    network = QNetworkConfig(lstm_size=0, head_size=8, mlp_sizes=(8,), stack_size=1)
    return R2D2(
        R2D2Config(burn_in=0, n_steps=2, update_target_every_n_step=1),
        ReplayConfig(replay_buffer_size=10, replay_buffer_min_size=1),
        make_context(lambda: create_network(OBSERVATIONS, ACTIONS, network)),
    )


def make_sac():
    """Fresh actions are not random: random ones differ from one division to another."""
    actions = spaces.Box(-1.0, 1.0, (2,), np.float32)
    distribution = deterministic_tanh_distribution(2)
    network = SACNetworkConfig(mlp_sizes=(8,), n_critics=2)
    return SAC(
        SACConfig(target_update_tau=0.5),
        ReplayConfig(replay_buffer_size=4, replay_buffer_min_size=1),
        make_context(
            lambda: create_sac_network(OBSERVATIONS, distribution, network), distribution, actions
        ),
    )


MAKERS = {
    "vtrace": make_vtrace,
    "popart": lambda: make_vtrace(popart=True, popart_beta=0.1),
    "normalized": lambda: make_vtrace(
        wrap=lambda network: NormalizeObservationsWrapper(network, Normalizer(eps=0.1))
    ),
    "r2d2": make_r2d2,
    "sac": make_sac,
    "ppo": make_ppo,
    "pqn": make_pqn,
    "policy_gradient": make_policy_gradient,
}


def normalization(algorithm, batches, placement):
    """Statistics of the observations in the network, in a copy for inference, and by NumPy."""
    (copy,) = [n for _, n in placement.place_inference(algorithm.network, algorithm.make_network)]
    initialize(algorithm, copy, env_specs.specs(OBSERVATIONS, spaces.Discrete(ACTIONS)))
    tf.function(copy_variables)(algorithm.network, [copy])
    seen = np.concatenate([batch.env_outputs.observation.reshape(-1, 4) for batch in batches])
    here, there = (network._normalizer.get_logs() for network in (algorithm.network, copy))
    values = {
        "trained": [here["normalizer/mean"], here["normalizer/std"]],
        "copied": [there["normalizer/mean"], there["normalizer/std"]],
        "numpy": [seen.mean(0), seen.std(0)],
    }
    return {f"statistics/{name}": np.stack(value).tolist() for name, value in values.items()}


def statistics(algorithm):
    """The variables of network and loss that are not trained."""
    trained = {id(variable) for variable in algorithm.trainable_variables()}
    found = {
        id(variable): variable
        for module in (algorithm.network, algorithm.loss_module)
        for variable in module.variables
    }
    return [variable for key, variable in found.items() if key not in trained]


def main(name, replicas, jit="false"):
    placement = make_devices(make_replicas(replicas))
    strategy = placement.training_strategy
    tf.keras.utils.set_random_seed(1)
    with strategy.scope():
        algorithm = MAKERS[name]()
        initialize(algorithm, algorithm.network, algorithm.specs)
        optimizer = tf.keras.optimizers.SGD(0.1)
    rng = np.random.default_rng(0)
    batches = [random_batch(rng, name, algorithm) for _ in range(3)]
    encode, decode = through_tf_data(lambda batch: batch, lambda batch: batch)
    parts = [
        encode(part(batch, number, replicas)) for batch in batches for number in range(replicas)
    ]

    def dataset(_):
        stacked = tuple(tf.stack(tensors) for tensors in zip(*parts, strict=True))
        return tf.data.Dataset.from_tensor_slices(stacked)

    step = TrainingStep(algorithm, optimizer, strategy, clip_norm=2.0, decode=decode, jit=jit)
    iterator = iter(strategy.distribute_datasets_from_function(dataset))
    result, told = {}, []
    if name != "normalized":
        algorithm.network.end_of_training_step_callback = lambda: told.append(name)
    for number in range(len(batches)):
        metrics, feedback = step.run(iterator)
        for metric, value in metrics.items():
            result[f"{number}/{metric}"] = float(value)
        for i, value in enumerate(tf.nest.flatten(feedback)):
            result[f"{number}/feedback/{i}"] = value.numpy().tolist()
        algorithm.after_step((), number + 1)
    if name == "normalized":
        result |= normalization(algorithm, batches, placement)
    for i, variable in enumerate(algorithm.trainable_variables()):
        result[f"weights/{i}"] = variable.numpy().tolist()
    if name == "policy_gradient":
        for i, variable in enumerate(statistics(algorithm)):
            result[f"statistics/{i}"] = variable.numpy().tolist()
    algorithm.close()
    result["told"] = len(told)
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
