"""What programs written for the original use of the on-policy learner."""

import json
import threading

import gin
import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from absl.testing import flagsaver

from seed_rl.agents.policy_gradient import (
    eval_utils,
    learner,
    learner_flags,
    program,
)
from seed_rl.agents.policy_gradient.learner_config import TrainingConfig
from seed_rl.common import utils
from seed_rl.common.errors import UserError
from seed_rl.common.learner import variables
from seed_rl.common.run_files import returns_log
from seed_rl.compat.agents.policy_gradient import job
from seed_rl.mujoco import ppo_main, ppo_parts
from tests.helpers import PROGRAMS, run_python
from tests.helpers.events import read_arrays

PARTS = """
GeneralizedOnPolicyLoss.policy_loss = @ppo()
GeneralizedOnPolicyLoss.reward_normalizer = None
GeneralizedOnPolicyLoss.advantage_estimator = @GAE()
GeneralizedOnPolicyLoss.discount_factor = 0.9
ppo.epsilon = 0.2
ppo.normalize_advantages = True
GAE.lambda_ = 0.9
ContinuousControlAgent.num_layers_policy = 1
ContinuousControlAgent.num_layers_value = 1
"""


@pytest.fixture(autouse=True)
def unconfigured():
    gin.clear_config()
    yield
    gin.clear_config()


@pytest.mark.slow
def test_learner_and_actors_of_a_program(train_to_end, tmp_path):
    """Guards imports, flags, gin, `learner_loop` and its arguments: the program learns."""
    config = tmp_path / "parts.gin"
    config.write_text(f"{PARTS}create_optimizer.optimizer_fn = @tf.keras.optimizers.Adam\n")
    logdir = train_to_end(
        *(str(PROGRAMS / "existing_ppo.py"), 12800),
        *("--env_batch_size=4", "--goals=3"),
        *(f"--gin_config={config}", "--gin_bindings=GAE.lambda_=0.5"),
        *("--step_size_transitions=128", "--batch_size_transitions=32"),
        *("--batch_mode=shuffle", "--epochs_per_step=4"),
        actors=2,
    )
    progress = json.loads((logdir / "progress.json").read_text())
    assert (progress["phase"], progress["frames"]) == ("done", 12800)
    operative = (logdir / "operative_config.gin").read_text()
    assert "GAE.lambda_ = 0.5" in operative and "Adam" in operative
    record = json.loads((logdir / "config.json").read_text())
    assert record["learning_rate"] == 1e-3  # Of the program's own optimizer; there is no flag.
    (checkpoint,) = (logdir / "checkpoints").iterdir()
    saved = tf.train.load_checkpoint(str(checkpoint / "variables"))
    assert saved.get_tensor("train_steps/.ATTRIBUTES/VARIABLE_VALUE") == 100
    returns = [row.episode_return for row in returns_log.read(logdir / returns_log.FILE_NAME)]
    # Chance is -0.7, and the mean of 500 of its episodes within 0.05 of that; 0 is the best.
    assert np.mean(returns[-500:]) > -0.6


@pytest.fixture
def config(tmp_path):
    return TrainingConfig(
        logdir=str(tmp_path / "run"),
        server_address=f"unix:{tmp_path}/socket",
        num_envs=4,
        env_batch_size=2,
        unroll_length=8,
        batch_mode="split",
        batches_per_step=2,
        epochs_per_step=2,
        total_environment_frames=4 * 8 * 6,
    )


def create_env(env_id, env_config):
    del env_id, env_config
    return gymnasium.make("CartPole-v1")


def create_agent(action_space, observation_space, distribution):
    del action_space
    return program.create_agent(None, observation_space, distribution)


@pytest.mark.slow
def test_a_learner_in_pieces(config, tmp_path):
    """Guards the order that programs choose: train, look, evaluate, save, train to the end."""
    gin.parse_config(PARTS)
    settings = utils.init_learner_multi_host(1)
    trainer = learner.Learner(create_env, create_agent, None, settings, config)
    with pytest.raises(UserError, match="prepare_for_run"):
        trainer.minimize()
    trainer.prepare_for_run()
    with pytest.raises(UserError, match="finalize"):
        trainer.prepare_for_run()
    assert trainer.generate_save_action_steps()[-1].step == 6
    state = trainer.get_state_fn()()
    in_optimizer = len(state.optimizer.variables)
    fresh = trainer.random_agent_variables()
    assert [f.shape for f in fresh] == [v.shape for v in variables.variables(state.training_agent)]

    trainer.start_actor_loops()
    first = [thread for thread in threading.enumerate() if thread.name.startswith("actor-")]
    trainer.start_actor_loops()  # Two actors of the same environments would disturb each other.
    assert first and not any(thread.is_alive() for thread in first)
    assert np.isfinite(trainer.minimize()["loss"])
    trainer.minimize_loop(2)
    assert int(state.optimizer.iterations) == 3 * 4  # Epochs and minibatches.
    assert len(state.optimizer.variables) == in_optimizer
    batch = trainer.pull_batch_from_unroll_queue()
    assert batch.env_outputs.reward.shape == (9, 4)
    assert int(state.optimizer.iterations) == 12 and not trainer.done()
    greedy = trainer.run_eval(2, deterministic_inference=True)
    assert [info.eval_name for info in greedy] == [learner.EVALUATION] * 2
    assert all(info.episode_returns == info.episode_num_frames > 0 for info in greedy)
    trainer.copy_to_inference_variables()
    trainer.save_checkpoint()
    trainer.save_model(str(tmp_path / "models"), eval_id=3)
    assert (tmp_path / "models" / "3").is_dir()

    (snapshot,) = trainer.run_training().snapshots
    assert snapshot.steps_done == 6 and trainer.done()
    assert snapshot.learner_state.training_agent is state.training_agent
    assert "train/learning_rate" in trainer.additional_logs()
    trainer.finalize()
    assert json.loads((tmp_path / "run" / "progress.json").read_text())["phase"] == "done"
    with pytest.raises(UserError, match="holds a saved run"):
        trainer.prepare_for_run(restore_latest_checkpoint=False)


def test_configs_of_impossible_sizes(config):
    devices = utils.init_learner(1)
    learner.validate_config(config, devices)
    for changes, message in (
        (dict(num_eval_envs=4), "no environment to train on"),
        (dict(batches_per_step=5), "cannot be divided"),
        (dict(batch_size=4, step_size_transitions=64), "set one or the other"),
    ):
        values = {name: getattr(config, name) for name in config.__dataclass_fields__}
        with pytest.raises(UserError, match=message):
            learner.validate_config(TrainingConfig(**{**values, **changes}), devices)


def test_training_environments_are_the_first():
    config = TrainingConfig(num_envs=10, num_eval_envs=3)
    assert config.num_training_envs() == 7
    np.testing.assert_array_equal(config.is_training_env(np.array([0, 6, 7, 9])), [1, 1, 0, 0])


def test_sizes_from_flags():
    flags.FLAGS.mark_as_parsed()
    with flagsaver.flagsaver(num_envs=10, num_eval_envs=2, unroll_length=16, batches_per_step=4):
        config = learner_flags.training_config_from_flags()
        assert (config.num_envs, config.unroll_length, config.batches_per_step) == (10, 16, 4)
        assert learner_flags.unroll_length_from_flags() == 16
        assert learner_flags.batch_size_from_flags() == 2
        with flagsaver.flagsaver(
            step_size_transitions=256, batch_size_transitions=32, batch_mode="split"
        ):
            assert learner_flags.unroll_length_from_flags() == 32
            assert learner_flags.batches_per_step_from_flags() == 8
            assert learner_flags.batch_size_from_flags() == 1
            assert learner_flags.training_config_from_flags().step_size_transitions is None
        with flagsaver.flagsaver(batches_per_step=16, batch_mode="split"):
            with pytest.raises(UserError, match="not a whole number of unrolls"):
                learner_flags.batch_size_from_flags()
        with flagsaver.flagsaver(batch_size=3, batches_per_step=2):
            assert learner_flags.batch_size_from_flags() == 3
        with flagsaver.flagsaver(batch_size=0, batches_per_step=0):
            assert learner_flags.batches_per_step_from_flags() == 1


def test_clip_norm_on_the_command_line_wins_over_the_gin_config():
    """Without both, gradients of a program's own optimizer are not clipped."""
    flags.FLAGS.mark_as_parsed()
    gin.parse_config("OptimizerConfig.clip_norm = 2.0")
    with flagsaver.flagsaver(clip_norm=None):
        for create_optimizer in (None, ppo_main.create_optimizer):
            assert job._optimizer_config(create_optimizer).clip_norm == 2.0
        flags.FLAGS["clip_norm"].parse("0.5")
        for create_optimizer in (None, ppo_main.create_optimizer):
            assert job._optimizer_config(create_optimizer).clip_norm == 0.5
    gin.clear_config()
    with flagsaver.flagsaver(clip_norm=None):
        assert job._optimizer_config(ppo_main.create_optimizer).clip_norm is None


def test_means_of_evaluations(tmp_path):
    """By name, whether episodes come one by one or together; until `reset`."""
    evaluator = eval_utils.Evaluator(print_episode_summaries=False)
    evaluator.add(eval_utils.EpisodeInfo("greedy", 10, 1.0, 2.0))
    evaluator.add_many(
        eval_utils.EpisodeInfo(
            tf.constant(["greedy", "sampled"]), np.array([20, 7]), [3.0, 5.0], [6.0, 0.0]
        )
    )
    expected = dict(episode_num_frames=15.0, episode_returns=2.0, episode_raw_returns=4.0)
    writer = tf.summary.create_file_writer(str(tmp_path))
    with writer.as_default(step=3):
        means = evaluator.process()
    writer.close()
    assert means["greedy"] == expected and means["sampled"]["episode_returns"] == 5.0
    tags = read_arrays(tmp_path)
    assert "greedy/episode_returns" in tags and len(tags) == 6
    evaluator.reset()
    assert evaluator.process(write_tf_summaries=False) == {}


@pytest.mark.parametrize("name, gain", [("sqrt2", 2**0.5), ("0dot01", 0.01)])
def test_orthogonal_initializers(name, gain):
    """All singular values are the gain, also when a gin config names the initializer."""
    gin.parse_config(f"create_optimizer.optimizer_fn = @orthogonal_gain_{name}()")
    named = gin.query_parameter("create_optimizer.optimizer_fn")
    initializers = [getattr(ppo_main, f"orthogonal_gain_{name}")(), named.scoped_configurable_fn()]
    for initializer in initializers:
        kernel = initializer([5, 3])
        np.testing.assert_allclose(np.linalg.svd(kernel, compute_uv=False), [gain] * 3, rtol=1e-4)


def test_optimizers_of_gin_configs():
    """`OptimizerConfig` by default, else the one named, and never both."""
    gin.parse_config("OptimizerConfig.learning_rate = 0.25")
    optimizer, learning_rate_fn = ppo_main.create_optimizer(10)
    assert isinstance(optimizer, tf.keras.optimizers.Adam)
    assert learning_rate_fn(0) == 0.25 and learning_rate_fn(10) == 0.0
    gin.parse_config("create_optimizer.optimizer_fn = @tf.keras.optimizers.SGD")
    with pytest.raises(UserError, match="described twice.*OptimizerConfig.learning_rate"):
        ppo_parts.create_optimizer(10)

    gin.clear_config()
    gin.parse_config(
        """
        OptimizerConfig.clip_norm = 0.5
        create_optimizer.optimizer_fn = @tf.keras.optimizers.SGD
        SGD.learning_rate = 0.125
        """
    )
    optimizer, learning_rate_fn = ppo_main.create_optimizer(10)
    assert isinstance(optimizer, tf.keras.optimizers.SGD) and learning_rate_fn(3) == 0.125
    gin.parse_config(
        """
        SGD.learning_rate = @PolynomialDecay()
        PolynomialDecay.initial_learning_rate = 1.0
        PolynomialDecay.decay_steps = 10
        PolynomialDecay.end_learning_rate = 0.0
        """
    )
    _, learning_rate_fn = ppo_main.create_optimizer(10)
    assert float(learning_rate_fn(5)) == pytest.approx(0.5)


@pytest.mark.parametrize("name", ["mujoco.ppo_main", "mujoco.vtrace_main", "atari.r2d2_main"])
def test_mains_take_a_command_line(name):
    """Guards the argument, and that it replaces the process's own command line."""
    call = f"import seed_rl.{name} as m; m.main(['program', '--run_mode=learner', '--num_env=3'])"
    result = run_python("-c", call, "--of_the_process=1", code=2)
    assert "flag 'num_env'. Did you mean: num_envs" in result.stderr
