"""A whole experiment from Python: train on CartPole, then step the trained policy.

    python -m examples.in_one_process

There are no flags: every option is an argument, so this also works in a notebook or a debugger.
"""

from __future__ import annotations

from typing import Any

import gymnasium

from seed_rl import experiment
from seed_rl.agents.vtrace.algorithm import create_job
from seed_rl.agents.vtrace.config import VTraceConfig
from seed_rl.common.acting.env_wrappers import wrap_for_agent
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.networks.network_factory import create_network


def create_env(env_id: int = 0, config: Any = None) -> gymnasium.Env[Any, Any]:
    """One environment, with observations and actions as agents expect them."""
    del env_id, config
    return wrap_for_agent(gymnasium.make("CartPole-v1"))


def train(logdir: str, frames: int, actors: str = "threads") -> experiment.Result:
    """Trains V-trace; continues the run in `logdir`, if there is one.

    Args:
      logdir: directory of the run.
      frames: environment frames after which it ends.
      actors: "threads" or "processes".
    """
    job = create_job(
        create_env,
        lambda action_space, observation_space, distribution: create_network(
            observation_space, distribution
        ),
        vtrace=VTraceConfig(kl_cost=10.0, baseline_cost=0.1),
        optimizer=OptimizerConfig(learning_rate=1e-3),
        run=RunConfig(logdir=logdir, num_envs=16, env_batch_size=8),
        config=LearnerConfig(total_environment_frames=frames, batch_size=8),
    )
    return experiment.run(job, actors=actors)


def play(logdir: str, seed: int | None = None) -> float:
    """The return of one episode with the policy trained in `logdir`."""
    policy = experiment.load_policy(logdir)
    env = create_env()
    observation, _ = env.reset(seed=seed)
    state, reward, over, total = policy.initial_state(), 0.0, False, 0.0
    while not over:
        action, state = policy(observation, state, reward)
        observation, step_reward, terminated, truncated, _ = env.step(action)
        reward = float(step_reward)
        total += reward
        over = terminated or truncated
    return total


if __name__ == "__main__":
    result = train("runs/in-one-process", frames=100_000)
    print(f"last 20 episodes of training: {result.returns[-20:].mean():.1f}")
    print(f"one episode of the trained policy: {play('runs/in-one-process'):.1f}")
