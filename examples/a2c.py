"""Another loss: advantage actor-critic, which trusts that unrolls are on-policy.

Like `./run_local.sh gym vtrace ...`, but with n-step returns instead of V-trace. Learner and actor:

    python -m examples.a2c --run_mode=learner --num_envs=8 --env_name=CartPole-v1
    python -m examples.a2c --run_mode=actor --num_envs=8 --env_batch_size=8 --env_name=CartPole-v1
"""

from __future__ import annotations

from typing import Any

from seed_rl.agents.vtrace import program
from seed_rl.common.config.network_config import ConvNetworkConfig, MLPNetworkConfig
from seed_rl.gym import vtrace_main


def algorithm() -> type:
    """The algorithm; TensorFlow is imported here, because actors do without it."""
    import tensorflow as tf

    from seed_rl.agents.vtrace.algorithm import VTrace
    from seed_rl.common.inference.network_calls import call_network
    from seed_rl.common.learner.algorithm import StepResult
    from seed_rl.common.learner.replicas import BatchMean
    from seed_rl.common.returns.transitions import transitions

    class A2C(VTrace):
        """V-trace's network, options and acting, with another loss."""

        learns_from_replay = False

        def loss(self, batch: Any) -> StepResult:
            """Mnih et al. 2016, section 4.

            Args:
              batch: `Unroll` of [time + 1, batch, ...].
            """
            config = self.config
            learned, _ = call_network(
                self.network, batch.prev_actions, batch.env_outputs, batch.agent_state, True, True
            )
            steps = transitions(
                batch.env_outputs, config.discounting, config.reward_scaling, config.max_abs_reward
            )
            mean = BatchMean(steps.mask)  # Over the unmasked steps of all replicas.
            v_tm1, bootstrap_value = learned.baseline[:-1], learned.baseline[-1]
            returns = tf.scan(
                lambda following, step: step[0] + step[1] * following,
                (steps.bootstrapping_rewards(v_tm1), steps.discount_t),
                initializer=bootstrap_value,
                reverse=True,
            )
            advantages = tf.stop_gradient(returns - v_tm1)
            policy = self.distribution(learned.policy_logits[:-1])
            a_tm1 = tf.nest.map_structure(lambda t: t[:-1], batch.agent_outputs.action)

            policy_loss = -mean(policy.log_prob(a_tm1) * advantages)
            baseline_loss = 0.5 * mean(tf.square(tf.stop_gradient(returns) - v_tm1))
            entropy = mean(policy.entropy())
            return StepResult(
                policy_loss + config.baseline_cost * baseline_loss - config.entropy_cost * entropy,
                {"losses/policy": policy_loss, "losses/baseline": baseline_loss},
            )

    return A2C


if __name__ == "__main__":
    program.main(
        vtrace_main.FAMILY,
        algorithm=algorithm,
        agent_configs=(MLPNetworkConfig, ConvNetworkConfig),
        presets=(vtrace_main.PRESET,),
        entropy_cost=0.01,
        kl_cost=0.0,  # Has no effect on this loss.
    )
