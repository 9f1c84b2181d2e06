"""V-trace (IMPALA) on the shared inference and learner."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from seed_rl.agents.vtrace import losses
from seed_rl.agents.vtrace.compat import compute_loss, optimizer_config, validate_config
from seed_rl.agents.vtrace.config import VTraceConfig
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.distribution_config import ContinuousDistributionConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.config.options import from_flags
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.distributions.base import ParametricDistribution
from seed_rl.common.distributions.spaces import get_parametric_distribution_for_action_space
from seed_rl.common.inference.agent_calls import call_agent
from seed_rl.common.inference.policy import Acted
from seed_rl.common.learner import variables
from seed_rl.common.learner.algorithm import Algorithm, StepResult
from seed_rl.common.learner.assembly import AlgorithmContext, learn
from seed_rl.common.learner.learner import CreateOptimizer
from seed_rl.common.nest import Nest
from seed_rl.common.types import EnvOutput, Unroll

__all__ = ["Unroll", "VTrace", "compute_loss", "learner_loop", "validate_config"]


class VTrace(Algorithm):
    """Actor-critic with off-policy correction (Espeholt et al. 2018)."""

    def __init__(
        self,
        config: VTraceConfig,
        create_agent: Callable[[], tf.Module],
        distribution: ParametricDistribution,
        num_envs: int,
        num_eval_envs: int = 0,
    ):
        """Makes the network; call it in the scope of the training strategy.

        Args:
          config: options of the loss.
          create_agent: makes a network with `AgentOutput(action, policy_logits, baseline)`.
          distribution: over actions, parametrized by `policy_logits`.
          num_envs: environments of the run.
          num_eval_envs: the last so many act greedily.
        """
        self._config = config
        self._distribution = distribution
        self._num_training_envs = num_envs - num_eval_envs
        self._num_eval_envs = num_eval_envs
        self._create_agent = create_agent
        self.agent = create_agent()
        self._entropy_cost = losses.EntropyCost(config)

    def make_agent(self) -> tf.Module:  # noqa: D102 - inherited
        return self._create_agent()

    def act(  # noqa: D102 - inherited
        self,
        agent: tf.Module,
        env_ids: tf.Tensor,
        prev_actions: Nest,
        env_outputs: EnvOutput,
        agent_state: Nest,
    ) -> Acted:
        output, agent_state = call_agent(agent, prev_actions, env_outputs, agent_state)
        if self._num_eval_envs:
            greedy = self._distribution.mode(output.policy_logits)
            evaluated = env_ids >= self._num_training_envs
            action = tf.nest.map_structure(
                functools.partial(_where, evaluated), greedy, output.action
            )
            output = output._replace(action=action)
        return Acted(output.action, output, agent_state)

    def evaluate(  # noqa: D102 - inherited
        self, prev_actions: Nest, env_outputs: EnvOutput, agent_state: Nest
    ) -> tuple[Nest, Nest]:
        output, agent_state = call_agent(self.agent, prev_actions, env_outputs, agent_state)
        return self._distribution.mode(output.policy_logits), agent_state

    def loss(self, batch: Unroll) -> StepResult:  # noqa: D102 - inherited
        loss, metrics = losses.compute_loss(
            self._config, self._distribution, self.agent, *batch, self._entropy_cost
        )
        return StepResult(loss, metrics)

    def trainable_variables(self) -> list[tf.Variable]:  # noqa: D102 - inherited
        return super().trainable_variables() + self.clipped_apart()

    def clipped_apart(self) -> list[tf.Variable]:  # noqa: D102 - inherited
        return variables.trainable_variables(self._entropy_cost)

    def checkpointables(self) -> dict[str, Any]:  # noqa: D102 - inherited
        return {"entropy_cost": self._entropy_cost}


def _where(condition: tf.Tensor, greedy: tf.Tensor, sampled: tf.Tensor) -> tf.Tensor:
    """Chooses rows; `condition` is <bool>[batch], the others [batch, ...]."""
    ones = [1] * (greedy.shape.rank - 1)
    return tf.where(tf.reshape(condition, [-1, *ones]), greedy, sampled)


def learner_loop(
    create_env_fn: Callable[[int, Any], Any],
    create_agent_fn: Callable[[Any, Any, ParametricDistribution], tf.Module],
    create_optimizer_fn: CreateOptimizer | None = None,
    *,
    env_config: Any = None,
    run: RunConfig | None = None,
    config: LearnerConfig | None = None,
    vtrace: VTraceConfig | None = None,
    optimizer: OptimizerConfig | None = None,
    continuous: ContinuousDistributionConfig | None = None,
    device_config: DeviceConfig | None = None,
) -> None:
    """Trains until the frames are used up or the process is told to stop.

    Args:
      create_env_fn: `create_env_fn(env_id, env_config)` returns an environment, made once to
        learn its spaces.
      create_agent_fn: `create_agent_fn(action_space, observation_space,
        parametric_action_distribution)` returns the network, of either form of `call_agent`.
      create_optimizer_fn: `create_optimizer_fn(final_iteration)` returns (optimizer,
        learning_rate_fn); by default as `optimizer` says.
      env_config: passed on to `create_env_fn`; the program's flags if not given.
      run: options shared with the actors. Like the other options below, those from the
        program's flags if not given, as in existing programs.
      config: options of the learner.
      vtrace: options of the loss.
      optimizer: options of the default optimizer, and the gradient clipping.
      continuous: options of continuous actions.
      device_config: what runs where.

    Raises:
      UserError: options that do not fit together or this machine.
    """
    vtrace = vtrace or from_flags(VTraceConfig)
    continuous = continuous or from_flags(ContinuousDistributionConfig)

    def create_algorithm(setting: AlgorithmContext) -> VTrace:
        spaces = setting.action_space, setting.observation_space
        distribution = get_parametric_distribution_for_action_space(spaces[0], continuous)
        return VTrace(
            vtrace,
            lambda: create_agent_fn(*spaces, distribution),
            distribution,
            setting.run.num_envs,
            setting.run.num_eval_envs,
        )

    learn(
        create_env_fn,
        create_algorithm,
        create_optimizer_fn,
        env_config=env_config,
        run=run,
        config=config,
        optimizer=optimizer or optimizer_config(create_optimizer_fn),
        device_config=device_config,
        agent_options=(vtrace, continuous),
    )
