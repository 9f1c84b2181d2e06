"""Inputs of networks, and what holds for every network."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium import spaces

from seed_rl.common.inference.network_calls import call_network
from seed_rl.common.networks.actor_critic import AgentOutput
from seed_rl.common.types import EnvOutput

NUM_ACTIONS = 3


def env_outputs(
    leading: tuple[int, ...], observation: Any, p_done: float = 0.3, seed: int = 0
) -> EnvOutput:
    """Outputs with random rewards and ends of episodes, nests of [*leading, ...]."""
    rng = np.random.default_rng(seed)
    return EnvOutput(
        tf.constant(rng.normal(size=leading), tf.float32),
        tf.constant(rng.random(leading) < p_done),
        tf.nest.map_structure(tf.convert_to_tensor, observation),
        tf.zeros(leading, tf.bool),
        tf.zeros(leading, tf.int32),
    )


def random_steps(
    space: spaces.Space[Any], num_steps: int, batch: int, num_actions: int
) -> tuple[tf.Tensor, EnvOutput]:
    """(previous actions, outputs with observations of the space), nests of [time, batch, ...]."""
    space.seed(0)
    samples = [space.sample() for _ in range(num_steps * batch)]
    columns = zip(*map(tf.nest.flatten, samples), strict=True)
    leaves = [np.stack(column) for column in columns]
    leaves = [leaf.reshape(num_steps, batch, *leaf.shape[1:]) for leaf in leaves]
    observation = tf.nest.pack_sequence_as(samples[0], leaves)
    actions = np.random.default_rng(1).integers(num_actions, size=(num_steps, batch))
    return tf.constant(actions), env_outputs((num_steps, batch), observation)


def assert_unroll_equals_steps(
    network: Any,
    prev_actions: Any,
    outputs: EnvOutput,
    act: Callable[..., tuple[Any, Any]] | None = None,
    tolerance: float = 1e-5,
) -> Any:
    """What training computes from an unroll is what inference computed step by step.

    Args:
      network: of either call form.
      prev_actions: of [time, batch, ...], or ().
      outputs: of [time, batch, ...].
      act: takes a step; None: a call of the network.
      tolerance: relative, and ten times smaller absolute.

    Returns:
      The outputs of the unroll.
    """
    act = act or functools.partial(call_network, network)

    def assert_close(actual: Any, expected: Any) -> None:
        np.testing.assert_allclose(actual, expected, rtol=10 * tolerance, atol=tolerance)

    state = network.initial_state(outputs.done.shape[1])
    unrolled, last = call_network(network, prev_actions, outputs, state, True, True)
    for t in range(outputs.done.shape[0]):
        now = tf.nest.map_structure(lambda x, t=t: x[t], (prev_actions, outputs))
        step, state = act(*now, state)
        # Actions are drawn anew each time.
        tf.nest.map_structure(lambda a, b, t=t: assert_close(a, b[t]), step[1:], unrolled[1:])
    tf.nest.map_structure(assert_close, state, last)
    return unrolled


def queue_stack(frames: np.ndarray, done: np.ndarray, stack_size: int) -> np.ndarray:
    """Stacks frames of [time, batch, ..., channels] along the channels, the newest last.

    One environment at a time; the queue is emptied where an episode begins.
    """
    stacks = np.zeros((*frames.shape[:-1], stack_size * frames.shape[-1]), np.uint8)
    black = np.zeros(frames.shape[2:], np.uint8)
    for b in range(frames.shape[1]):
        queue = collections.deque([black] * stack_size, stack_size)
        for t in range(frames.shape[0]):
            if done[t, b]:
                queue.extend([black] * stack_size)
            queue.append(frames[t, b])
            stacks[t, b] = np.concatenate(queue, axis=-1)
    return stacks


class TableAgent(tf.Module):
    """A 'network' whose outputs are given, so that the loss alone is under test."""

    def __init__(self, policy_logits: np.ndarray, baseline: np.ndarray):
        super().__init__()
        self.policy_logits = tf.Variable(policy_logits)
        self.baseline = tf.Variable(baseline)

    def __call__(
        self, prev_actions: Any, env_outputs: Any, agent_state: Any, unroll: bool, is_training: bool
    ) -> tuple[AgentOutput, Any]:
        assert unroll and is_training
        return AgentOutput(None, self.policy_logits + 0, self.baseline + 0), agent_state


def random_batch(
    seed: int, num_steps: int = 12, batch: int = 5, p_done: float = 0.25
) -> tuple[TableAgent, EnvOutput, AgentOutput]:
    """An agent, and what another policy met in unrolls of num_steps + 1 steps: NumPy's arrays."""
    rng = np.random.default_rng(seed)
    shape = (num_steps + 1, batch)
    done = rng.random(shape) < p_done
    # The last state of an abandoned episode is an ordinary step: no two in a row.
    done[1:] &= ~done[:-1]
    abandoned = done & (rng.random(shape) < 0.5)
    reward = np.where(abandoned, 0.0, 2 * rng.normal(size=shape)).astype(np.float32)
    env_outputs = EnvOutput(reward, done, np.zeros(shape), abandoned, np.zeros(shape, np.int32))
    behaviour = AgentOutput(
        rng.integers(0, NUM_ACTIONS, shape).astype(np.int32),
        rng.normal(size=(*shape, NUM_ACTIONS)).astype(np.float32),
        rng.normal(size=shape).astype(np.float32),
    )
    agent = TableAgent(
        rng.normal(size=(*shape, NUM_ACTIONS)).astype(np.float32),
        rng.normal(size=shape).astype(np.float32),
    )
    return agent, env_outputs, behaviour
