"""The network that reads instructions, and what a trained one is played in."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.agents.vtrace.algorithm import create_job
from seed_rl.agents.vtrace.config import VTraceConfig
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.network_config import ConvNetworkConfig
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.distributions.discrete import categorical_distribution
from seed_rl.common.types import EnvOutput
from seed_rl.dmlab import environment as env
from seed_rl.dmlab import instructions
from seed_rl.dmlab.networks import InstructionEncoder, create_network
from tests.helpers import network_inputs
from tests.helpers.network_inputs import assert_unroll_equals_steps

WORDS = 6
CONFIG = env.DmlabConfig(width=48, height=36, instructions=True, instruction_words=WORDS)
NETWORK = ConvNetworkConfig(torso="impala_shallow", stack_size=1, lstm_sizes=(8,))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def read(encoder: InstructionEncoder, words: list[int]) -> np.ndarray:
    """What the LSTM says after the last word, one word after the other; 0 without words."""
    lstm = encoder._lstm
    assert encoder.embeddings is not None and lstm.bias is not None
    kernel, recurrent = lstm.input_kernel.numpy(), lstm.recurrent_kernel.numpy()
    hidden = cell = np.zeros(recurrent.shape[0])
    for word in words:
        if word == 0:
            break
        x = encoder.embeddings.numpy()[word - 1] @ kernel + hidden @ recurrent + lstm.bias.numpy()
        i, f, o, candidate = np.split(x, 4)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(candidate)
        hidden = sigmoid(o) * np.tanh(cell)
    return hidden


def test_instructions_are_read_word_by_word() -> None:
    """Instructions of any length in one batch; words after the last, as none, do not count."""
    tf.random.set_seed(1)
    encoder = InstructionEncoder(embedding_size=5, lstm_size=7)
    words = np.array([[3, 1000, 3, 0], [1, 2, 3, 4], [9, 0, 0, 0], [0, 0, 0, 0]], np.int32)
    features = encoder(tf.constant(words))
    expected = [read(encoder, row) for row in words.tolist()]
    np.testing.assert_allclose(features, expected, atol=1e-5)
    assert not np.asarray(features[3]).any() and np.asarray(features[:3]).all()
    unrolled = encoder(tf.constant(words.reshape(2, 2, 4)))
    np.testing.assert_allclose(unrolled, np.reshape(expected, [2, 2, 7]), atol=1e-5)


@pytest.fixture(scope="module")
def network() -> Any:
    tf.random.set_seed(2)
    lab = env.create_environment(0, CONFIG)
    return create_network(lab.observation_space, categorical_distribution(9, tf.int64), NETWORK)


def steps(time: int, batch: int, text: str) -> tuple[tf.Tensor, EnvOutput]:
    rng = np.random.default_rng(0)
    words = np.broadcast_to(instructions.encode(text, WORDS), [time, batch, WORDS])
    observation = {
        env.FRAME: tf.constant(rng.integers(256, size=[time, batch, 36, 48, 3], dtype=np.uint8)),
        env.INSTRUCTION: tf.constant(words),
    }
    return tf.zeros([time, batch], tf.int64), network_inputs.env_outputs((time, batch), observation)


def test_an_unroll_is_its_steps(network: Any) -> None:
    """Guards the instruction channel of both calls: V-trace would correct for any difference."""
    assert_unroll_equals_steps(network, *steps(3, 2, "go to the red hat"))


def test_instructions_matter_and_are_trained(network: Any) -> None:
    """All variables get gradients: the embeddings of words that were read, too."""
    values = []
    for text in ("red hat", "blue hat", ""):
        prev_actions, env_outputs = steps(2, 2, text)
        state = network.initial_state(2)
        with tf.GradientTape() as tape:
            output, _ = network(prev_actions, env_outputs, state, unroll=True)
            loss = tf.reduce_sum(output.baseline) + tf.reduce_sum(output.policy_logits**2)
        values.append(output.baseline.numpy())
        gradients = tape.gradient(loss, network.trainable_variables)
        assert all(gradient is not None for gradient in gradients)
        read = text != ""
        embedding = next(
            tf.convert_to_tensor(g)
            for g, v in zip(gradients, network.trainable_variables, strict=True)
            if "embeddings" in v.name
        )
        assert np.count_nonzero(np.any(embedding.numpy() != 0, axis=1)) == (2 if read else 0)
    assert not np.allclose(values[0], values[1]) and not np.allclose(values[0], values[2])


def test_without_instructions_frames_are_the_observation() -> None:
    lab = env.create_environment(0, env.DmlabConfig(width=48, height=36))
    network = create_network(lab.observation_space, categorical_distribution(9, tf.int64), NETWORK)
    prev_actions, env_outputs = steps(2, 2, "")
    env_outputs = env_outputs._replace(observation=env_outputs.observation[env.FRAME])
    output, _ = network(prev_actions, env_outputs, network.initial_state(2), unroll=True)
    assert output.policy_logits.shape == (2, 2, 9)
    assert not [v.name for v in network.variables if "embeddings" in v.name]


def test_evaluation_plays_the_level_of_tests() -> None:
    """Guards `seed_rl.play` of agents whose level has a counterpart for tests."""
    config = env.DmlabConfig("rooms_collect_good_objects_train", 48, 36, num_envs=3)
    for num_eval_envs, level in enumerate(("train", "test")):
        job = create_job(
            env.create_environment,
            lambda _, observations, family: create_network(observations, family, NETWORK),
            env_config=dataclasses.replace(config, num_eval_envs=num_eval_envs),
            run=RunConfig(num_envs=3, num_eval_envs=num_eval_envs),
            config=LearnerConfig(batch_size=1, unroll_length=1),
            vtrace=VTraceConfig(),
            optimizer=OptimizerConfig(),
            device_config=DeviceConfig("cpu:0", "cpu:0"),
        )
        assert job.create_env()._game == f"rooms_collect_good_objects_{level}"
