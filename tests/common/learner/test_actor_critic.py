"""Networks of users that do not return what acting and training need."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from seed_rl.agents.vtrace.algorithm import VTrace
from seed_rl.agents.vtrace.config import VTraceConfig
from seed_rl.common.distributions.discrete import categorical_distribution
from seed_rl.common.errors import UserError
from seed_rl.common.inference.env_specs import env_output_specs
from seed_rl.common.inference.inference import check_exportable, initialize
from seed_rl.common.inference.network_calls import call_network
from seed_rl.common.networks.actor_critic import AgentOutput
from seed_rl.common.types import Specs
from tests.helpers.contexts import context

SPECS = Specs(tf.TensorSpec([], tf.int32), env_output_specs(spaces.Box(0, 1, (2,), np.float32)))
GOOD: dict[str, Any] = {
    "action": tf.zeros([1], tf.int32),
    "policy_logits": tf.zeros([1, 3]),
    "baseline": tf.zeros([1]),
}
STATE = (tf.zeros([1, 4]),)


class Network(tf.Module):
    def __init__(self, returned: Any, initial_state: Any):
        super().__init__()
        self._returned = returned
        self.initial_state = initial_state

    def __call__(
        self,
        prev_actions: Any,
        env_outputs: Any,
        agent_state: Any,
        unroll: bool = False,
        is_training: bool = False,
    ) -> Any:
        return self._returned


def start(returned: Any, initial_state: Any = lambda size: (tf.zeros([size, 4]),)) -> Any:
    distribution = categorical_distribution(3, tf.int32)
    create = lambda: Network(returned, initial_state)  # noqa: E731
    algorithm = VTrace(VTraceConfig(), context(create, distribution, num_envs=5))
    return initialize(algorithm, algorithm.network, SPECS)


def test_a_fitting_network_is_recorded():
    recorded = start((AgentOutput(**GOOD), STATE))
    assert [spec.shape.as_list() for spec in recorded] == [[], [3], []]
    # As programs may have it: a list of states, such as Keras returns, in NumPy's arrays.
    start((AgentOutput(**GOOD), [np.zeros([1, 4], np.float32)]))
    # With a loss of its own.
    start((AgentOutput(**GOOD | {"baseline": tf.zeros([1, 2])}), STATE))
    start((AgentOutput(**GOOD | {"baseline": ()}), STATE))


class KerasModel(tf.keras.Model):
    """Of the form ((previous actions, environment outputs), state)."""

    def call(self, inputs: Any, agent_state: Any, unroll: bool = False) -> Any:
        _, env_outputs = inputs
        return env_outputs.reward + tf.cast(unroll, tf.float32), agent_state


class OwnCall(tf.keras.layers.Layer):
    __call__ = KerasModel.call


@pytest.mark.parametrize("model", [KerasModel, OwnCall])
def test_a_keras_model_may_have_the_form_of_existing_programs(model: Any):
    """Guards that its `call` is asked for its form where `__call__` takes any arguments."""
    action, env_outputs = tf.nest.map_structure(
        lambda spec: tf.zeros([2, *spec.shape], spec.dtype), (SPECS.action, SPECS.env_output)
    )
    output, _ = call_network(model(), action, env_outputs, (), unroll=True)
    np.testing.assert_array_equal(output, [1.0, 1.0])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"policy_logits": tf.zeros([1, 4])}, r"policy_logits are \(1, 4\).*\[batch, 3\]"),
        ({"baseline": tf.zeros([1, 1])}, r"baseline is \(1, 1\).*squeeze"),
        ({"policy_logits": tf.zeros([1, 3], tf.bfloat16)}, "policy_logits is bfloat16.*float32"),
        ({"baseline": tf.zeros([1], tf.float16)}, "baseline is float16.*float32"),
        ({"baseline": tf.zeros([])}, r"baseline is \(\).*squeeze"),
        ({"action": tf.zeros([1])}, r"the action float32\[1\].* must be int32\[1\]"),
        ({"action": tf.zeros([1, 3], tf.int32)}, r"the action int32\[1, 3\].* must be int32\[1\]"),
    ],
)
def test_a_wrong_output_is_named(wrong: dict[str, tf.Tensor], message: str):
    """Guards against tracebacks of TensorFlow, and messages that blame an actor's options."""
    with pytest.raises(UserError, match=message):
        start((AgentOutput(**GOOD | wrong), STATE))


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (AgentOutput(**GOOD), "must return .AgentOutput, new state., not AgentOutput"),
        ((tuple(GOOD.values()), STATE), "but tuple has no action, policy_logits"),
        ((AgentOutput(**GOOD), ()), r"the new state \(\) for .* must be float32\[1, 4\]"),
        ((AgentOutput(**GOOD), None), r"the new state None for .* must be float32\[1, 4\]"),
        ((AgentOutput(**GOOD), (tf.zeros([1, 5]),)), r"the new state float32\[1, 5\]"),
    ],
)
def test_a_lost_state_is_not_trained_on(returned: Any, message: str):
    """Guards recurrent networks: without a state, training would be another than acting."""
    with pytest.raises(UserError, match=message):
        start(returned)


@pytest.mark.parametrize(
    "initial_state",
    [lambda n: np.zeros([n, 4], np.float32), lambda n: tf.constant([[0.0] * 4] * n)],
)
def test_states_that_cannot_be_exported(initial_state: Any):
    """They can be trained and played, so only learners that export refuse them, at their start."""
    start((AgentOutput(**GOOD), initial_state(1)), initial_state)
    network: Any = SimpleNamespace(initial_state=initial_state)
    with pytest.raises(UserError, match="cannot be exported: .*tf.zeros.*--nosave_model"):
        check_exportable(network)


@pytest.mark.parametrize(
    ("initial_state", "message"),
    [
        (lambda size: tf.zeros([1, size, 4]), r"initial_state\(2\) = float32\[1, 2, 4\], but"),
        (lambda size: tf.zeros([2, size, 4]), r"initial_state\(1\) = float32\[2, 1, 4\], but"),
        (lambda size: {"a": tf.zeros([])}, r"initial_state\(1\) = float32\[\], but .* \[1, ...\]"),
        (lambda size: None, r"initial_state\(1\) = None, but .* \(\) if there is no state"),
    ],
)
def test_a_wrong_initial_state_is_refused_at_the_start(initial_state: Any, message: str):
    """Guards training on states of other environments, and runs that fail at their very end."""
    with pytest.raises(UserError, match=message):
        start((AgentOutput(**GOOD), initial_state(1)), initial_state)
