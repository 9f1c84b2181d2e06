"""Names and signatures that existing programs use of SAC, MuJoCo and Atari."""

import pytest

from tests.helpers import existing_names

NAMES = {
    "seed_rl.agents.sac.learner": """
        compute_loss(logger, parametric_action_distribution, agent, target_agent, agent_state,\
 prev_actions, env_outputs, agent_actions)
        Unroll = agent_state, prev_actions, env_outputs, agent_actions
        create_dataset(unroll_queue, replay_buffer, strategy, batch_size, encode)
        get_replay_insertion_batch_size(per_replica=False)
        validate_config()
        learner_loop(create_env_fn, create_agent_fn, create_optimizer_fn)
    """,
    "seed_rl.agents.sac.networks": """
        create_mlp(hidden_sizes, hidden_activation, last_layer_activation)
        ActorCriticMLP < tf.Module
        ActorCriticMLP(parametric_action_distribution, n_critics, mlp_sizes,\
 hidden_activation='relu', last_layer_activation=None)
        ActorCriticMLP.initial_state(batch_size)
        ActorCriticMLP.get_Q(prev_action, env_output, state, action)
        ActorCriticMLP.get_V(prev_action, env_output, state)
        ActorCriticMLP.get_action_params(prev_action, env_output, state)
        ActorCriticMLP.get_action(*args, **kwargs)
        LSTMwithFeedForwardBranch < tf.Module
        LSTMwithFeedForwardBranch(lstm_sizes, pre_mlp_sizes, post_mlp_sizes, ff_mlp_sizes,\
 hidden_activation='relu', last_layer_activation=None)
        LSTMwithFeedForwardBranch.initial_state(batch_size)
        ActorCriticLSTM < tf.Module
        ActorCriticLSTM(parametric_action_distribution, n_critics, lstm_sizes, pre_mlp_sizes,\
 post_mlp_sizes, ff_mlp_sizes)
        ActorCriticLSTM.initial_state(batch_size)
        ActorCriticLSTM.get_Q(prev_action, env_output, state, action)
        ActorCriticLSTM.get_V(prev_action, env_output, state)
        ActorCriticLSTM.get_action_params(prev_action, env_output, state)
        ActorCriticLSTM.get_action(*args, **kwargs)
    """,
    "seed_rl.mujoco.sac_main": """
        create_agent(action_space, env_observation_space, parametric_action_distribution)
        create_optimizer(final_iteration)
        main(argv)
    """,
    "seed_rl.mujoco.env": """
        SinglePrecisionWrapper < gymnasium.Wrapper
        SinglePrecisionWrapper(env)
        SinglePrecisionWrapper.reset()
        SinglePrecisionWrapper.step(action)
        create_environment(env_name, discretization='none', n_actions_per_dim=11,\
 action_ratio=30.0, gym_kwargs=None)
    """,
    "seed_rl.mujoco.toy_env": """
        ToyEnv < gymnasium.Env
        ToyEnv(horizon=3, n_actions=3)
        ToyEnv.step(action)
        ToyEnv.reset()
        ToyEnv.render()
        ToyMemoryEnv < gymnasium.Env
        ToyMemoryEnv(horizon=3, n_actions=3)
        ToyMemoryEnv.step(action)
        ToyMemoryEnv.reset()
        ToyMemoryEnv.render()
        BitFlippingEnv < gymnasium.Env
        BitFlippingEnv(n_bits=10, horizon=20)
        BitFlippingEnv.reset()
        BitFlippingEnv.step(action)
        BitFlippingEnv.compute_reward(achieved_goal, desired_goal, info=None)
    """,
    "seed_rl.mujoco.ppo_main": """
        orthogonal_gain_sqrt2()
        orthogonal_gain_0dot01()
        create_optimizer(final_iteration, optimizer_fn)
        create_agent(action_space, observation_space, parametric_action_distribution)
        main(argv)
    """,
    "seed_rl.mujoco.vtrace_main": """
        create_agent(action_space, env_observation_space, parametric_action_distribution)
        create_optimizer(final_iteration)
        main(argv)
    """,
    "seed_rl.atari.r2d2_main": """
        create_agent(env_output_specs, num_actions)
        create_optimizer(final_iteration)
        main(argv)
    """,
}


@pytest.mark.parametrize(("module", "line"), existing_names.cases(NAMES))
def test_name(module: str, line: str) -> None:
    existing_names.check(module, line)
