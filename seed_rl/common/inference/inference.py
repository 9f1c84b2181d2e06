"""Batched central inference: the function that actors call.

As in the paper (§3.1, fig. 3), actors send observations, the newest weights choose actions, and the
recurrent state, the last action and the trajectory of each environment stay on the learner. One
implementation serves every agent; the differences are in its `Algorithm`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from seed_rl.common.errors import UserError
from seed_rl.common.inference import env_specs
from seed_rl.common.inference.inference_store import InferenceStore
from seed_rl.common.inference.policy import Acted, Policy
from seed_rl.common.nest import Nest
from seed_rl.common.types import EnvOutput, Specs, Step

_HOST = "/cpu:0"


class CentralInference:
    """The inference function of each inference device, and the store they share.

    Attributes:
      store: the per-environment tables and the queue of complete unrolls.
      functions: one `tf.function` per device, all named `inference`, for `grpc.Server.bind`:

          inference(env_ids <int32>[batch], run_ids <int64>[batch], env_outputs nest of
                    [batch, ...], raw_rewards <float32>[batch], successes <float32>[batch])
              -> actions nest of [batch, ...]

        See `BatchStep` for the last two.
    """

    def __init__(
        self,
        policy: Policy,
        specs: Specs,
        placements: Sequence[tuple[str, tf.Module]],
        *,
        num_envs: int,
        num_eval_envs: int = 0,
        max_batch: int = 0,
        **sizes: int,
    ):
        """Creates the variables of every network and an empty store.

        Args:
          policy: chooses actions.
          specs: specs of one environment.
          placements: (device, network) for each inference device.
          num_envs: number of environments; their ids are `[0, num_envs)`.
          num_eval_envs: of these, evaluation environments, which have the highest ids.
          max_batch: environments in the largest batch; 0: `num_envs`.
          **sizes: `unroll_length`, `queue_capacity` and `unrolls_per_step` of `InferenceStore`.
        """
        self._policy = policy
        self._specs = specs
        self._max_batch = max_batch or num_envs
        self._num_eval_envs = num_eval_envs
        self._num_training_envs = num_envs - num_eval_envs
        for device, network in placements:
            with tf.device(device):
                recorded = initialize(policy, network, specs)
        self.store = InferenceStore(
            num_envs=num_envs,
            num_training_envs=self._num_training_envs,
            num_overlapping_steps=policy.num_overlapping_steps,
            action_specs=specs.action,
            initial_state=policy.network.initial_state(1),
            step_specs=Step(specs.action, specs.env_output, recorded),
            **sizes,
        )
        self.functions = [
            self._function(number, device, network)
            for number, (device, network) in enumerate(placements)
        ]
        for device, network in placements:
            self._warm(device, network)

    def _warm(self, device: str, network: tf.Module) -> None:
        """Acts on zeros once in each size that the device runs: the first time takes long."""
        specs = self._specs

        @tf.function(input_signature=[tf.TensorSpec([], tf.int32)], autograph=False)
        def act(size: tf.Tensor) -> Nest:
            prev_actions, env_outputs = tf.nest.map_structure(
                lambda s: tf.zeros([size, *s.shape], s.dtype), (specs.action, specs.env_output)
            )
            state = tf.nest.map_structure(
                lambda t: tf.repeat(t, size, axis=0), network.initial_state(1)
            )
            env_ids = tf.zeros([size], tf.int32)
            return self._act(device, network, (env_ids, prev_actions, env_outputs, state)).action

        for size in batch_sizes(device, self._max_batch):
            act(size)

    def _function(self, number: int, device: str, network: tf.Module) -> Any:
        @tf.function(input_signature=env_specs.call_signature(self._specs), autograph=False)
        def inference(
            env_ids: tf.Tensor,
            run_ids: tf.Tensor,
            env_outputs: EnvOutput,
            raw_rewards: tf.Tensor,
            successes: tf.Tensor,
        ) -> Nest:
            _decorrelate_random_ops(number)
            with tf.device(_HOST):
                env_outputs = self._evaluate_whole_games(env_ids, env_outputs)
                begun = self.store.begin(env_ids, run_ids, env_outputs, raw_rewards, successes)
                prev_actions, state = begun
                acted = self._act(device, network, (env_ids, prev_actions, env_outputs, state))
                step = Step(prev_actions, env_outputs, acted.agent_outputs)
                self.store.end(env_ids, run_ids, acted.action, acted.agent_state, step)
            return acted.action

        return inference

    def _evaluate_whole_games(self, env_ids: tf.Tensor, env_outputs: EnvOutput) -> EnvOutput:
        """Hides ends of learning episodes (such as lost lives) in evaluation environments."""
        if not self._num_eval_envs:
            return env_outputs
        kept = (env_ids < self._num_training_envs) | tf.equal(env_outputs.episode_step, 0)
        return env_outputs._replace(done=env_outputs.done & (kept | env_outputs.abandoned))

    def _act(self, device: str, network: tf.Module, inputs: tuple[Nest, ...]) -> Acted:
        """Acts on a device; pads the batch to one of its sizes, if it has any."""
        size = tf.shape(inputs[0])[0]
        sizes = batch_sizes(device, self._max_batch)
        # By default TensorFlow would pad on the first GPU, behind a training step on it.
        padding = device if "GPU" in device.upper() else _HOST
        if sizes:
            fitting = tf.reduce_min(tf.where(tf.constant(sizes) < size, sizes[-1], sizes))
            padded = fitting if len(sizes) > 1 else sizes[0]
            with tf.device(padding):
                inputs = tf.nest.map_structure(lambda t: _pad(t, padded), inputs)
        # Only after `begin`, whose results these are: it refuses unknown environments, which
        # exploration would look up, and may wait for new weights.
        with tf.control_dependencies(tf.nest.flatten(inputs[1])), tf.device(device):
            acted = self._policy.act(network, *inputs)
        if sizes:
            with tf.device(padding):
                acted = tf.nest.map_structure(lambda t: t[:size], acted)
        return acted


def _decorrelate_random_ops(number: int) -> None:
    """If there is a seed, gives the graph being traced a seed of its own.

    TensorFlow derives the seeds of random ops from that of their graph and their position in it, so
    with `--seed` all inference devices would draw the same numbers. The first one keeps the seed.

    Args:
      number: index of the inference device.
    """
    graph = tf.compat.v1.get_default_graph()
    if number and graph.seed is not None:
        graph.seed = int(np.random.SeedSequence([graph.seed, number]).generate_state(1)[0] >> 1)


def batch_sizes(device: str, largest: int) -> list[int]:
    """The batch sizes that a device runs, ascending, up to `largest`; empty: any.

    A TPU compiles for each size, so it gets one. On a GPU, cuDNN times its algorithms for each new
    size of a convolution: powers of two bound how often, and at most double the work.
    """
    if "TPU" in device.upper():
        return [largest]
    if "GPU" in device.upper():
        return [*(2**n for n in range((largest - 1).bit_length())), largest]
    return []


def _pad(tensor: tf.Tensor, size: tf.Tensor | int) -> tf.Tensor:
    """Pads a batch with zeros to `size` rows."""
    missing = size - tf.shape(tensor)[0]
    padded = tf.pad(tensor, [[0, missing]] + [[0, 0]] * (tensor.shape.rank - 1))
    rows = size if isinstance(size, int) else None
    return tf.ensure_shape(padded, [rows, *tensor.shape[1:]])


def initialize(policy: Policy, network: tf.Module, specs: Specs) -> Nest:
    """Acts once on zeros, which creates the variables of `network`.

    Returns:
      Nest of `tf.TensorSpec` of the agent outputs recorded per step, without a batch dimension.

    Raises:
      UserError: the network's outputs do not fit the environment, or its own initial state, or that
        is not a batch of states.
    """
    _check_initial_state(network)
    action, env_output = tf.nest.map_structure(
        lambda s: tf.zeros([1, *s.shape], s.dtype), (specs.action, specs.env_output)
    )
    state = network.initial_state(1)
    acted = policy.act(network, tf.zeros([1], tf.int32), action, env_output, state)
    for name, output, like in (
        ("action", acted.action, action),
        ("new state", acted.agent_state, state),
    ):
        given, expected = _shapes(output), _shapes(like)
        if given != expected:
            raise UserError(
                f"The network {type(network).__name__} returns the {name} {given} for a batch of "
                f"one, but it must be {expected}."
            )
    return tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape[1:], t.dtype), acted.agent_outputs)


def _check_initial_state(network: Any) -> None:
    """Refuses initial states that are not one per environment."""
    name = type(network).__name__
    for size in (1, 2):  # One or two layers would look like a batch.
        state = network.initial_state(size)
        for leaf in tf.nest.flatten(state):
            if leaf is None or tf.convert_to_tensor(leaf).shape[:1] != [size]:
                raise UserError(
                    f"The network {name} returns initial_state({size}) = {_shapes(state)}, but the "
                    f"first dimension of each array must be the batch, [{size}, ...]. Return () if "
                    "there is no state."
                )


def check_exportable(network: Any) -> None:
    """Refuses a network whose initial states cannot be exported, before it has been trained.

    Raises:
      UserError: see above.
    """
    name = type(network).__name__
    traced = tf.function(lambda size: network.initial_state(size), autograph=False)
    try:
        traced.get_concrete_function(tf.TensorSpec([], tf.int32))
    except Exception as error:
        raise UserError(
            f"The network {name} cannot be exported: its initial_state(batch_size) failed for a "
            "scalar int32 tensor, which exported models take. Create states with tf.zeros or "
            "tf.fill, not with NumPy or Python's numbers, or add --nosave_model. "
            f"({type(error).__name__}: {error})"
        ) from error


def _shapes(nest: Nest) -> str:
    """The types and shapes of a nest's leaves in words, for comparisons."""

    def words(leaf: Any) -> str:
        if leaf is None:
            return "None"
        tensor = tf.convert_to_tensor(leaf)
        return f"{tensor.dtype.name}{tensor.shape.as_list()}"

    return ", ".join(map(words, tf.nest.flatten(nest))) or "()"
