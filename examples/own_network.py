"""Your own network, and a job with options of your choice instead of `program.main`.

python -m examples.own_network --run_mode=learner --num_envs=8 --env_name=CartPole-v1
python -m examples.own_network --run_mode=actor --num_envs=8 --env_batch_size=8
"""

from __future__ import annotations

from typing import Any

from seed_rl.agents.vtrace.config import VTraceConfig
from seed_rl.common.acting.actor import ActorConfig, actor_loop
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.options import define_flags, from_flags, run_main
from seed_rl.common.config.run_config import ACTOR, RunConfig
from seed_rl.gym.env import GymConfig, create_environment


def create_agent(action_space: Any, observation_space: Any, distribution: Any) -> Any:
    """Creates the network: dense layers that also see how long the episode has lasted.

    Args:
      action_space: of one environment.
      observation_space: of one environment, a `Box` of one dimension.
      distribution: over actions; `policy_logits` are its parameters.
    """
    del action_space, observation_space
    import tensorflow as tf  # Here, because actors run this module too.

    from seed_rl.common.networks.actor_critic import AgentOutput

    class Network(tf.Module):
        """Not recurrent, so the same for one step [batch] and for unrolls [time, batch]."""

        def __init__(self) -> None:
            super().__init__()
            self._hidden = [tf.keras.layers.Dense(64, "tanh") for _ in range(2)]
            self._policy = tf.keras.layers.Dense(distribution.param_size)
            self._baseline = tf.keras.layers.Dense(1)

        def initial_state(self, batch_size: Any) -> tuple[()]:
            return ()

        def __call__(
            self,
            prev_actions: Any,
            env_outputs: Any,
            agent_state: Any,
            unroll: bool = False,
            is_training: bool = False,
        ) -> tuple[AgentOutput, Any]:
            age = tf.cast(env_outputs.episode_step, tf.float32)[..., tf.newaxis] / 500
            features = tf.concat([env_outputs.observation, age], axis=-1)
            for layer in self._hidden:
                features = layer(features)
            logits = self._policy(features)
            baseline = tf.squeeze(self._baseline(features), axis=-1)
            return AgentOutput(distribution(logits).sample(), logits, baseline), agent_state

    return Network()


def main() -> None:
    """Runs the learner or an actor, depending on --run_mode."""
    # All that the program lets its users set; --help lists it.
    define_flags(
        *(RunConfig, ActorConfig, GymConfig, VTraceConfig, LearnerConfig),
        batch_size=8,
        baseline_cost=0.1,
        kl_cost=10.0,
    )
    run_main(_run)


def _run() -> None:
    environment = from_flags(GymConfig)
    if from_flags(RunConfig).required_mode() == ACTOR:
        actor_loop(create_environment, from_flags(ActorConfig), environment)
        return
    from seed_rl.agents.vtrace.algorithm import create_job
    from seed_rl.common.config.optimizer_config import OptimizerConfig

    create_job(
        create_environment,
        create_agent,
        env_config=environment,
        optimizer=OptimizerConfig(learning_rate=1e-3),  # Not a flag of this program.
    ).execute()


if __name__ == "__main__":
    main()
