"""PPO in its simplest form: advantages once, then epochs of minibatches over one batch of unrolls.

On any Gymnasium environment. Learner and actor:

    python -m examples.ppo --run_mode=learner --num_envs=8 --env_name=CartPole-v1
    python -m examples.ppo --run_mode=actor --num_envs=8 --env_batch_size=8 --env_name=CartPole-v1
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from seed_rl.agents.vtrace import program
from seed_rl.common.config.network_config import ConvNetworkConfig, MLPNetworkConfig
from seed_rl.common.config.options import Preset, from_flags, option
from seed_rl.common.errors import UserError
from seed_rl.gym import vtrace_main


@dataclasses.dataclass(frozen=True)
class PPOConfig:
    """PPO."""

    epochs: int = option(4, "Passes over each batch.", minimum=1)
    minibatches: int = option(4, "Gradient steps per epoch, each on a part.", minimum=1)
    ppo_epsilon: float = option(0.2, "Clipping of the probability ratio.", minimum=0.0)


def algorithm() -> type:
    """The algorithm; TensorFlow is imported here, because actors do without it."""
    import tensorflow as tf

    from seed_rl.agents.vtrace.algorithm import VTrace
    from seed_rl.common.inference.network_calls import call_network
    from seed_rl.common.learner.algorithm import Minimize, StepResult
    from seed_rl.common.learner.replicas import BatchMean
    from seed_rl.common.learner.training import mean_result
    from seed_rl.common.returns.transitions import transitions
    from seed_rl.common.returns.vtrace import from_importance_weights
    from seed_rl.common.types import Unroll

    class PPO(VTrace):
        """Schulman et al. 2017, on unrolls with their stored recurrent state.

        `--lambda_` is that of generalized advantage estimation. Minibatches hold whole unrolls.
        """

        learns_from_replay = False

        def __init__(self, *args: Any):
            super().__init__(*args)
            self.ppo = from_flags(PPOConfig)
            self.updates_per_batch = self.ppo.epochs * self.ppo.minibatches

        def update(self, batch: Unroll, minimize: Minimize) -> StepResult:
            num_unrolls = batch.env_outputs.reward.shape[1]
            if num_unrolls % self.ppo.minibatches:
                raise UserError(
                    f"{num_unrolls} unrolls on each training device cannot be split into "
                    f"--minibatches={self.ppo.minibatches}."
                )
            advantages, targets = self.advantages(batch)
            steps = batch._replace(agent_state=()), advantages, targets
            results = []
            for _ in range(self.ppo.epochs):
                order = tf.random.shuffle(tf.range(num_unrolls))
                for rows in tf.split(order, self.ppo.minibatches):
                    state = _rows(batch.agent_state, rows, axis=0)
                    unrolls, advantage, target = _rows(steps, rows, axis=1)
                    minibatch = unrolls._replace(agent_state=state)
                    loss = functools.partial(self.ppo_loss, minibatch, advantage, target)
                    results.append(minimize(loss))
            return mean_result(results)

        def advantages(self, batch: Unroll) -> tuple[tf.Tensor, tf.Tensor]:
            """Generalized advantages, normalized, and value targets: <float32>[time, batch].

            Generalized advantage estimation is V-trace between equal policies.
            """
            values = self._run(batch).baseline
            steps = self._transitions(batch)
            same = tf.zeros_like(steps.r_t)
            targets = from_importance_weights(
                same,
                same,
                steps.discount_t,
                steps.bootstrapping_rewards(values[:-1]),
                values[:-1],
                values[-1],
                lambda_=self.config.lambda_,
            ).vs
            advantages, mean = targets - values[:-1], BatchMean(steps.mask)
            advantages -= mean.everywhere(advantages)
            deviation = tf.sqrt(mean.everywhere(tf.square(advantages)))
            return tf.stop_gradient(advantages / (deviation + 1e-8)), tf.stop_gradient(targets)

        def ppo_loss(
            self, minibatch: Unroll, advantages: tf.Tensor, targets: tf.Tensor
        ) -> StepResult:
            learned, mean = self._run(minibatch), BatchMean(self._transitions(minibatch).mask)
            a_tm1 = tf.nest.map_structure(lambda t: t[:-1], minibatch.agent_outputs.action)
            policy = self.distribution(learned.policy_logits[:-1])
            behaviour = self.distribution(minibatch.agent_outputs.policy_logits[:-1])
            log_ratio = policy.log_prob(a_tm1) - behaviour.log_prob(a_tm1)
            ratio = tf.exp(tf.clip_by_value(log_ratio, -20.0, 20.0))  # Finite, also if masked.
            epsilon = self.ppo.ppo_epsilon
            clipped = tf.clip_by_value(ratio, 1.0 - epsilon, 1.0 + epsilon)
            policy_loss = -mean(tf.minimum(ratio * advantages, clipped * advantages))
            baseline_loss = 0.5 * mean(tf.square(targets - learned.baseline[:-1]))
            entropy = mean(policy.entropy())
            config = self.config
            return StepResult(
                policy_loss + config.baseline_cost * baseline_loss - config.entropy_cost * entropy,
                {"losses/policy": policy_loss, "losses/baseline": baseline_loss},
            )

        def _run(self, unrolls: Unroll) -> Any:
            state, actions, env_outputs, _ = unrolls
            return call_network(self.network, actions, env_outputs, state, True, True)[0]

        def _transitions(self, unrolls: Unroll) -> Any:
            config = self.config
            return transitions(
                unrolls.env_outputs,
                config.discounting,
                config.reward_scaling,
                config.max_abs_reward,
            )

    def _rows(nest: Any, rows: tf.Tensor, axis: int) -> Any:
        return tf.nest.map_structure(lambda t: tf.gather(t, rows, axis=axis), nest)

    return PPO


PRESET = Preset("ppo", dict(unroll_length=32, lambda_=0.95, reward_scaling=0.1, kl_cost=0.0))
"""PPO does not use V-trace's KL cost, importance weights and target entropy."""

if __name__ == "__main__":
    program.main(
        vtrace_main.FAMILY,
        algorithm=algorithm,
        agent_configs=(MLPNetworkConfig, ConvNetworkConfig, PPOConfig),
        presets=(vtrace_main.PRESET, PRESET),
    )
