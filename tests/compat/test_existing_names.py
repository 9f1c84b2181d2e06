"""Names and signatures that existing programs use."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import pytest
import tensorflow as tf

AGENT = "seed_rl.agents.policy_gradient"
MODULES = f"{AGENT}.modules"

# One name a line. `Class(...)` is its constructor; a base class is named where programs rely on it;
# `Tuple = a, b` has these fields.
NAMES = {
    "seed_rl.common.actor": """
        are_summaries_enabled()
        actor_loop(create_env_fn, config=None, log_period=1)
    """,
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
    f"{AGENT}.eval_utils": """
        EpisodeInfo = eval_name, episode_num_frames, episode_returns, episode_raw_returns
        Evaluator(print_episode_summaries, log_episode_frequency=1)
        Evaluator.add(data)
        Evaluator.add_many(data)
        Evaluator.reset()
        Evaluator.process(write_tf_summaries=True)
    """,
    f"{AGENT}.learner": """
        Unroll = agent_state, prev_actions, env_outputs, agent_outputs
        LearnerState = training_agent, loss_fn, optimizer
        Snapshot = steps_done, learner_state
        TrainingResult = snapshots
        SaveActionPoint = step, model, snapshot, checkpoint
        validate_config(config, settings)
        TrainingHost
        Learner(create_env_fn, create_agent_fn, create_optimizer_fn, settings, config,\
 create_loss_fn=None, action_distribution_config=None)
        Learner.build_new_agent()
        Learner.random_agent_variables()
        Learner.generate_save_action_steps()
        Learner.run_eval(num_episodes, deterministic_inference=False)
        Learner.run_training()
        Learner.get_state_fn()
        Learner.prepare_for_run(logdir=None, init_checkpoint=None,\
 restore_latest_checkpoint=True, reuse_summary_writer=False, init_server=True)
        Learner.finalize()
        Learner.done()
        Learner.copy_to_inference_variables()
        Learner.create_dataset()
        Learner.pull_batch_from_unroll_queue()
        Learner.minimize()
        Learner.minimize_loop(iterations)
        Learner.init_server()
        Learner.start_actor_loops()
        Learner.stop_actor_loops()
        Learner.save_checkpoint()
        Learner.save_model(directory=None, eval_id=-1)
        Learner.additional_logs()
        learner_loop(create_env_fn, create_agent_fn, create_optimizer_fn, config, settings,\
 action_distribution_config=None)
    """,
    f"{AGENT}.learner_config": """
        InferenceReturn < enum.IntEnum
        TrainingConfig.num_training_envs()
        TrainingConfig.is_training_env(env_id)
    """,
    f"{AGENT}.learner_flags": """
        unroll_length_from_flags()
        batch_size_from_flags()
        batches_per_step_from_flags()
        training_config_from_flags()
    """,
    f"{MODULES}.advantages": """
        vtrace(values, rewards, done_terminated, done_abandoned, discount_factor,\
 target_action_log_probs, behaviour_action_log_probs, lambda_=1.0, max_importance_weight=1.0,\
 name='vtrace')
        gae(values, rewards, done_terminated, done_abandoned, discount_factor,\
 target_action_log_probs=None, behaviour_action_log_probs=None, lambda_=1.0, name='gae')
        AdvantageEstimator < tf.Module
        AdvantageEstimator.__call__(values, rewards, done_terminated, done_abandoned,\
 discount_factor, target_action_log_probs, behaviour_action_log_probs)
        GAE < AdvantageEstimator
        GAE(lambda_, name='gam')
        VTrace < AdvantageEstimator
        VTrace(lambda_, max_importance_weight=1.0, name='vtrace')
        NStep < AdvantageEstimator
        NStep(n, name='nstep2')
        NStep.__call__(values, rewards, done_terminated, done_abandoned, discount_factor,\
 target_action_log_probs, behaviour_action_log_probs)
    """,
    f"{MODULES}.constraints": """
        Coefficient < tf.Module
        Coefficient.init()
        Coefficient.__call__()
        Coefficient.adjustment_loss(reference_value)
        Coefficient.scale_loss(unscaled_loss)
        FixedCoefficient < Coefficient
        FixedCoefficient(value)
        LagrangeInequalityCoefficient < Coefficient
        LagrangeInequalityCoefficient(threshold, init_alpha=1.0, alpha_range=(1e-06, 1000000.0),\
 adjustment_speed=1.0, init_variables=True)
        LagrangeInequalityCoefficient.init()
        LagrangeInequalityCoefficient.adjustment_loss(reference_value)
    """,
    f"{MODULES}.continuous_control_agent": """
        AgentOutput = action, policy_logits, baseline
        ContinuousControlAgent < tf.Module
        ContinuousControlAgent(parametric_action_distribution, observation_normalizer=None,\
 num_layers_policy=3, num_layers_value=3, num_layers_rnn=0, num_units_policy=256,\
 num_units_value=256, num_units_rnn=256, layer_normalizer=None, shared=False,\
 residual_connections=False, activation=None, kernel_init='glorot_uniform',\
 last_kernel_init_value=None, last_kernel_init_value_scaling=None, last_kernel_init_policy=None,\
 last_kernel_init_policy_scaling=None, correct_observations=False,\
 std_independent_of_input=False, input_clipping=None)
        ContinuousControlAgent.initial_state(batch_size)
        ContinuousControlAgent.get_action(input_, core_state)
        ContinuousControlAgent.update_observation_normalization_statistics(observations)
        ContinuousControlAgent.__call__(input_, core_state, unroll=False, is_training=False)
        swish(input_activation)
    """,
    f"{MODULES}.generalized_onpolicy_loss": """
        GeneralizedOnPolicyLoss < tf.Module
        GeneralizedOnPolicyLoss(agent, reward_normalizer, parametric_action_distribution,\
 advantage_estimator, policy_loss, discount_factor, regularizer=None, max_abs_reward=None,\
 handle_abandoned_episodes_properly=True, huber_delta=None, value_ppo_style_clip_eps=None,\
 baseline_cost=1.0, include_regularization_in_returns=False, frame_skip=1, reward_scaling=1.0)
        GeneralizedOnPolicyLoss.init()
        GeneralizedOnPolicyLoss.compute_advantages(agent_state, prev_actions, env_outputs,\
 agent_outputs, return_learner_outputs=False)
        GeneralizedOnPolicyLoss.__call__(agent_state, prev_actions, env_outputs, agent_outputs,\
 normalized_targets=None, normalized_advantages=None)
        PolicyLoss < tf.Module
        PolicyLoss.__call__(advantages, target_action_log_probs, behaviour_action_log_probs)
        RegularizationLoss < tf.Module
        RegularizationLoss.__call__(parametric_action_distribution, target_action_logits,\
 behaviour_action_logits, actions)
    """,
    f"{MODULES}.input_normalization": """
        InputNormalization < tf.Module
        InputNormalization(mean_std_tracker)
        InputNormalization.initialized
        InputNormalization.init_normalization_stats(input_size)
        InputNormalization.normalize(x)
        InputNormalization.correct(x)
        InputNormalization.update_normalization_statistics(data)
        InputNormalization.get_mean_std()
    """,
    f"{MODULES}.policy_losses": """
        AdvantagePreprocessor < tf.Module
        AdvantagePreprocessor(normalize=False, only_positive=False, only_top_half=False,\
 offset=None)
        AdvantagePreprocessor.__call__(advantages)
        GeneralizedAdvantagePolicyLoss < tf.Module
        GeneralizedAdvantagePolicyLoss(advantage_preprocessor=None, use_importance_weights=False,\
 max_importance_weight=None, ppo_epsilon=None, max_advantage=None, advantage_transformation=None,\
 temperature=None)
        GeneralizedAdvantagePolicyLoss.__call__(advantages, target_action_log_probs,\
 behaviour_action_log_probs, actions, target_logits, behaviour_logits,\
 parametric_action_distribution=None)
        pg()
        vtrace(max_importance_weight=1.0)
        ppo(epsilon, normalize_advantages=False, advantage_offset=None)
        awr(beta, w_max)
        bc_logp()
        softmax_all_dims(t)
        vmpo(e_n)
        repeat_positive_advantages()
    """,
    f"{MODULES}.policy_regularizers": """
        KLPolicyRegularizer < tf.Module
        KLPolicyRegularizer(**coefficients)
        KLPolicyRegularizer.__call__(parametric_action_distribution, pi_logits, mu_logits,\
 actions, with_logging=True)
    """,
    f"{MODULES}.popart": """
        PopArt < tf.Module
        PopArt(mean_std_tracker, compensate=True)
        PopArt.init()
        PopArt.normalize_target(x)
        PopArt.normalize_advantage(x)
        PopArt.correct_prediction(x)
        PopArt.unnormalize_prediction(x)
        PopArt.update_normalization_statistics(data)
    """,
    f"{MODULES}.logging_module": """
        LoggingModule.log(key, tensor)
        LoggingModule.set_logging_dict(logging_dict)
        LoggingModule.unset_logging_dict()
        LoggingTape(tracked_modules)
        ModuleAlreadyTapedError
    """,
    f"{MODULES}.ppo_training_step_utils": """
        ppo_training_step(epochs_per_step, loss_fn, args, batch_mode, training_strategy,\
 virtual_batch_size, unroll_length, batches_per_step, clip_norm, optimizer, logger)
        compute_advantages_and_split(loss_fn, input_args)
        single_epoch(loss_fn, args, batch_mode, training_strategy, virtual_batch_size,\
 unroll_length, batches_per_step, clip_norm, optimizer, logger)
    """,
    f"{MODULES}.running_statistics": """
        MeanStd < tf.Module
        MeanStd.init(size)
        MeanStd.normalize(x)
        MeanStd.unnormalize(x)
        MeanStd.update(data)
        MeanStd.get_mean_std()
        EMAMeanStd < MeanStd
        EMAMeanStd(beta=0.01, std_min_value=1e-06, std_max_value=1000000.0)
        EMAMeanStd.init(size)
        EMAMeanStd.first_moment
        EMAMeanStd.second_moment
        merge_summed_variances(v1, v2, mu1, mu2, merged_mean, n1, n2)
        merge_means(mu1, mu2, n1, n2)
        AverageMeanStd < MeanStd
        AverageMeanStd(std_min_value=1e-06, std_max_value=1000000.0)
        AverageMeanStd.init(size)
        AverageMeanStd.merge(other, alpha=1.0)
        AverageMeanStd.reset(alpha=1.0)
        FixedMeanStd < MeanStd
        FixedMeanStd(mean=0.0, std=1.0)
        FixedMeanStd.init(size)
        TwoLevelAverageMeanStd < MeanStd
        TwoLevelAverageMeanStd(std_min_value=1e-06, std_max_value=1000000.0, buffer_size=100000.0)
        TwoLevelAverageMeanStd.init(size)
    """,
}


@pytest.mark.parametrize(
    ("module_name", "line"),
    [
        (module, line.strip())
        for module, lines in NAMES.items()
        for line in lines.strip().splitlines()
    ],
)
def test_name(module_name: str, line: str) -> None:
    module = importlib.import_module(module_name)
    if match := re.fullmatch(r"(\w+) = (.*)", line):
        assert list(_resolve(module, match[1])._fields) == match[2].split(", ")
    elif match := re.fullmatch(r"(\w+) < ([\w.]+)", line):
        home, _, base = match[2].rpartition(".")
        home = importlib.import_module({"tf": "tensorflow"}.get(home, home)) if home else module
        assert issubclass(_resolve(module, match[1]), getattr(home, base))
    elif match := re.fullmatch(r"([\w.]+)\((.*)\)", line):
        function = _resolve(module, match[1])
        is_class = inspect.isclass(function)
        function = function.__init__ if is_class else function
        wanted = _wanted_parameters(match[2], module)
        _check_signature(function, wanted, bound=1 if is_class or "." in match[1] else 0)
    else:
        _resolve(module, line)


def _resolve(module: Any, dotted: str) -> Any:
    value = module
    for name in dotted.split("."):
        value = getattr(value, name)
    return value


def _wanted_parameters(text: str, module: Any) -> list[inspect.Parameter]:
    """The parameters of `f(text)`, with defaults of the module's names."""
    space: dict[str, Any] = {**vars(module), "tf": tf}
    exec(f"def wanted({text}): pass", space)
    return list(inspect.signature(space["wanted"]).parameters.values())


def _check_signature(function: Any, wanted: list[inspect.Parameter], bound: int) -> None:
    """A call by the old signature means the same: places, names and defaults."""
    own = list(inspect.signature(function).parameters.values())[bound:]
    named = {parameter.name: parameter for parameter in own}
    variadic = {parameter.kind for parameter in own}
    positional = [p for p in own if p.kind is p.POSITIONAL_OR_KEYWORD]
    place = 0
    for parameter in wanted:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            # Passed on to a function that has its own parameters, or taken by name here.
            continue
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            assert positional[place].name == parameter.name
            place += 1
        if parameter.default is not parameter.empty:
            assert named[parameter.name].default == parameter.default, parameter.name
    known = {parameter.name for parameter in wanted}
    for parameter in own:
        if parameter.name not in known and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            passes_on = any(p.kind is p.VAR_POSITIONAL for p in wanted)
            assert passes_on or parameter.default is not parameter.empty, parameter.name
    if any(p.kind is p.VAR_KEYWORD for p in wanted):
        assert inspect.Parameter.VAR_KEYWORD in variadic or len(own) > len(wanted) - 1
