"""Batched central inference: the function that actors call.

Follows the paper (§3.1, fig. 3): observations come in, the newest weights choose actions, and the
recurrent state, the last action and the trajectory of each environment stay here. One
implementation serves every agent; what differs is in its `Algorithm`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from seed_rl.common.inference.inference_store import InferenceStore
from seed_rl.common.inference.policy import Acted, Policy
from seed_rl.common.nest import Nest
from seed_rl.common.types import EnvOutput, Specs, Step


@dataclasses.dataclass(frozen=True)
class InferenceSizes:
    """How many environments there are and how long their unrolls.

    Attributes:
      num_envs: ids are `[0, num_envs)`.
      num_eval_envs: the last so many are only evaluated.
      unroll_length: steps of an unroll besides overlap and bootstrap step.
      queue_capacity: complete unrolls that may wait for training.
      max_batch: environments in the largest batch; 0: all of them.
    """

    num_envs: int
    num_eval_envs: int
    unroll_length: int
    queue_capacity: int
    max_batch: int = 0


class CentralInference:
    """Tables, unrolls and the inference function of each inference device.

    Attributes:
      store: the per-environment tables and the queue of complete unrolls.
      functions: one `tf.function` per device, all named `inference`, for `grpc.Server.bind`:

          inference(env_ids <int32>[batch], run_ids <int64>[batch], env_outputs nest of
                    [batch, ...], raw_rewards <float32>[batch]) -> actions nest of [batch, ...]
    """

    def __init__(
        self,
        policy: Policy,
        specs: Specs,
        sizes: InferenceSizes,
        placements: Sequence[tuple[str, tf.Module]],
    ):
        """Creates the variables of every agent and an empty store.

        Args:
          policy: how to act.
          specs: of one environment.
          sizes: of the store.
          placements: (device, agent) for each inference device.
        """
        self._policy = policy
        self._specs = specs
        self._max_batch = sizes.max_batch or sizes.num_envs
        self._num_eval_envs = sizes.num_eval_envs
        self._num_training_envs = sizes.num_envs - sizes.num_eval_envs
        for device, agent in placements:
            with tf.device(device):
                recorded = initialize(policy, agent, specs)
        self.store = InferenceStore(
            num_envs=sizes.num_envs,
            num_training_envs=self._num_training_envs,
            unroll_length=sizes.unroll_length,
            num_overlapping_steps=policy.num_overlapping_steps,
            queue_capacity=sizes.queue_capacity,
            action_specs=specs.action,
            initial_state=policy.network.initial_state(1),
            step_specs=Step(specs.action, specs.env_output, recorded),
        )
        self.functions = [
            self._function(number, device, agent)
            for number, (device, agent) in enumerate(placements)
        ]

    def _function(self, number: int, device: str, agent: tf.Module) -> Any:
        batched = tf.nest.map_structure(
            lambda s: tf.TensorSpec([None, *s.shape], s.dtype, s.name), self._specs.env_output
        )

        @tf.function(
            input_signature=[
                tf.TensorSpec([None], tf.int32, "env_ids"),
                tf.TensorSpec([None], tf.int64, "run_ids"),
                batched,
                tf.TensorSpec([None], tf.float32, "raw_rewards"),
            ],
            autograph=False,
        )
        def inference(
            env_ids: tf.Tensor, run_ids: tf.Tensor, env_outputs: EnvOutput, raw_rewards: tf.Tensor
        ) -> Nest:
            env_outputs = self._evaluated_on_whole_games(env_ids, env_outputs)
            _draw_apart(number)
            prev_actions, state = self.store.begin(env_ids, run_ids, env_outputs, raw_rewards)
            acted = self._act(device, agent, (env_ids, prev_actions, env_outputs, state))
            step = Step(prev_actions, env_outputs, acted.agent_outputs)
            self.store.end(env_ids, run_ids, acted.action, acted.agent_state, step)
            return acted.action

        return inference

    def _evaluated_on_whole_games(self, env_ids: tf.Tensor, env_outputs: EnvOutput) -> EnvOutput:
        """Takes ends of learning episodes (lost lives, say) out of evaluation environments."""
        if not self._num_eval_envs:
            return env_outputs
        kept = (env_ids < self._num_training_envs) | tf.equal(env_outputs.episode_step, 0)
        return env_outputs._replace(done=env_outputs.done & (kept | env_outputs.abandoned))

    def _act(self, device: str, agent: tf.Module, inputs: tuple[Nest, ...]) -> Acted:
        """Acts on a device, for as many environments as there are inputs."""
        size = tf.shape(inputs[0])[0]
        if requires_static_batch(device):
            inputs = tf.nest.map_structure(lambda t: _pad(t, self._max_batch), inputs)
        with tf.device(device):
            acted = self._policy.act(agent, *inputs)
        if requires_static_batch(device):
            acted = tf.nest.map_structure(lambda t: t[:size], acted)
        return acted


def _draw_apart(number: int) -> None:
    """Gives the graph that is being traced random numbers of its own, where there is a seed.

    TensorFlow numbers the random ops of each graph alike, so that with `--seed` every inference
    device would draw what the others draw. The first one keeps the seed.

    Args:
      number: of the inference device.
    """
    graph = tf.compat.v1.get_default_graph()
    if number and graph.seed is not None:
        graph.seed = int(np.random.SeedSequence([graph.seed, number]).generate_state(1)[0] >> 1)


def requires_static_batch(device: str) -> bool:
    """Whether the device compiles anew for every batch size. (A TPU does.)"""
    return "TPU" in device.upper()


def _pad(tensor: tf.Tensor, size: int) -> tf.Tensor:
    """Adds zeros to a batch, up to `size` rows."""
    missing = size - tf.shape(tensor)[0]
    padded = tf.pad(tensor, [[0, missing]] + [[0, 0]] * (tensor.shape.rank - 1))
    return tf.ensure_shape(padded, [size, *tensor.shape[1:]])


def initialize(policy: Policy, agent: tf.Module, specs: Specs) -> Nest:
    """Acts once on zeros, which creates the variables of `agent`.

    Returns:
      Nest of `tf.TensorSpec` of what is recorded per step, without batch dimension.
    """
    action, env_output = tf.nest.map_structure(
        lambda s: tf.zeros([1, *s.shape], s.dtype), (specs.action, specs.env_output)
    )
    acted = policy.act(agent, tf.zeros([1], tf.int32), action, env_output, agent.initial_state(1))
    return tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape[1:], t.dtype), acted.agent_outputs)
