"""Names and signatures that existing programs use of `seed_rl.common`."""

import pytest

from tests.helpers import existing_names

NAMES = {
    "seed_rl.common.env_wrappers": """
        spec_to_box(spec)
        flatten_and_concatenate_obs(obs_dict)
        UniformBoundActionSpaceWrapper < gymnasium.Wrapper
        UniformBoundActionSpaceWrapper(env)
        UniformBoundActionSpaceWrapper.step(action)
        DiscretizeEnvWrapper < gymnasium.Env
        DiscretizeEnvWrapper(env, n_actions_per_dim, discretization='lin', action_ratio=None)
        DiscretizeEnvWrapper.step(action)
        DiscretizeEnvWrapper.reset()
        DiscretizeEnvWrapper.render(*args, **kwargs)
        BatchedEnvironment(create_env_fn, batch_size, id_offset, config)
        BatchedEnvironment.env_ids
        BatchedEnvironment.envs
        BatchedEnvironment.step(action_batch)
        BatchedEnvironment.reset()
        BatchedEnvironment.reset_if_done(done)
        BatchedEnvironment.render(mode='human', **kwargs)
        BatchedEnvironment.close()
    """,
    "seed_rl.common.normalizer": """
        Normalizer < tf.Module
        Normalizer(eps=0.001, clip_range=(-5, 5))
        Normalizer.build(input_shape)
        Normalizer.update(input_, only_accumulate=False)
        Normalizer.finish_update()
        Normalizer.__call__(input_)
        Normalizer.get_logs()
        NormalizeObservationsWrapper < tf.Module
        NormalizeObservationsWrapper(policy, normalizer)
        NormalizeObservationsWrapper.initial_state(*args, **kwargs)
        NormalizeObservationsWrapper.get_action(*args, **kwargs)
        NormalizeObservationsWrapper.__call__(prev_actions, env_outputs, *args,\
 is_training=False, **kwargs)
        NormalizeObservationsWrapper.end_of_training_step_callback()
        NormalizeObservationsWrapper.get_Q(prev_action, env_output, *args, **kwargs)
        NormalizeObservationsWrapper.get_V(prev_action, env_output, *args, **kwargs)
        NormalizeObservationsWrapper.get_action_params(prev_action, env_output, *args, **kwargs)
    """,
    "seed_rl.common.parametric_distribution": """
        ParametricDistribution(param_size, create_dist)
        ParametricDistribution.create_dist
        ParametricDistribution.__call__(params)
        ParametricDistribution.param_size
        ParametricDistribution.reparametrizable
        ParametricDistribution.sample(parameters)
        ParametricDistribution.log_prob(parameters, actions)
        ParametricDistribution.entropy(parameters)
        ParametricDistribution.kl_divergence(parameters_a, parameters_b)
        categorical_distribution(n_actions, dtype)
        multi_categorical_distribution(n_dimensions, n_actions_per_dim, dtype)
        softplus_default_std_fn(scale)
        normal_tanh_distribution(num_actions, gaussian_std_fn=softplus_default_std_fn)
        normal_clipped_distribution(num_actions, gaussian_std_fn=softplus_default_std_fn)
        deterministic_tanh_distribution(num_actions)
        joint_distribution(parametric_distributions, dtype_override=tf.float32)
        check_multi_discrete_space(space)
        check_box_space(space)
        get_parametric_distribution_for_action_space(action_space, continuous_config=None)
        safe_exp(x)
        safe_exp_std_fn(std_for_zero_param, min_std)
        softplus_std_fn(std_for_zero_param, min_std)
        ContinuousDistributionConfig
        continuous_action_config(action_min_gaussian_std=0.001,\
 action_gaussian_std_fn='softplus', action_std_for_zero_param=1, action_postprocessor='Tanh')
    """,
    "seed_rl.common.utils": """
        Settings = strategy, inference_devices, training_strategy, encode, decode
        MultiHostSettings = strategy, hosts, training_strategy, encode, decode
        init_learner_multi_host(num_training_tpus)
        init_learner(num_training_tpus)
    """,
}


@pytest.mark.parametrize(("module", "line"), existing_names.cases(NAMES))
def test_name(module: str, line: str) -> None:
    existing_names.check(module, line)
