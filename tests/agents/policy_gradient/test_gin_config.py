"""Gin configs: what is found, what is refused and how, and what a run records of them."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import pathlib
from types import SimpleNamespace

import gin
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from seed_rl.agents.policy_gradient import gin_config, gin_options, gin_record, program
from seed_rl.agents.policy_gradient.config import OnPolicyConfig
from seed_rl.common import parametric_distribution
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError
from seed_rl.common.inference.network_calls import call_network
from seed_rl.common.learner.coefficients import LagrangeInequalityCoefficient
from seed_rl.common.learner.job import TrainingJob
from seed_rl.common.parametric_distribution import categorical_distribution
from seed_rl.common.types import EnvOutput
from seed_rl.mujoco import ppo_main, toy_env
from tests.helpers import on_policy_runs

SHIPPED = sorted(str(p) for p in pathlib.Path("seed_rl").glob("*/gin/*.gin") if p.stem != "base")
PPO = "seed_rl/mujoco/gin/ppo.gin"
MUJOCO = ppo_main.PRESET.values


def create(images=False):
    """Network and loss of the current config, as a main program creates them."""
    distribution = categorical_distribution(3, tf.int32)
    space = toy_env.ToyEnv().observation_space
    if images:
        space = spaces.Box(0, 255, (84, 84, 1), np.uint8)
    with gin_config.errors_for_users():
        gin_config.optimizer_config()
        gin_config.continuous_action_config()
        network = program.create_agent(None, space, distribution)
        return gin_config.create_loss(network, distribution)


def test_all_configs_are_here():
    assert len(SHIPPED) == 7


@pytest.mark.parametrize("config", SHIPPED)
def test_a_shipped_config_is_complete_and_all_of_it_has_an_effect(config, caplog):
    """Guards against settings that look as if they mattered."""
    on_policy_runs.load(config)
    create(images="atari" in config)
    options = gin_options.of_preset({})
    defaults = {name: gin_options.parameters(name, options[name]) for name in options}
    with caplog.at_level(logging.WARNING):
        gin_config.warn_of_unused(defaults)
    assert not caplog.records, caplog.text


def recorded(saved, bindings=(), files=(PPO,), **chosen):
    """What a run records that continues `saved`."""
    config = OnPolicyConfig(gin_config=files, gin_bindings=bindings)
    settled = gin_record.load(config, saved, {**gin_options.of_preset(MUJOCO), **chosen}, chosen)
    algorithm = SimpleNamespace(network=create()._agent)
    nothing = dict.fromkeys(field.name for field in dataclasses.fields(TrainingJob))
    parts = {"run": RunConfig(logdir="here"), "algorithm": algorithm, "options": {}, "files": {}}
    job = TrainingJob(**{**nothing, **parts})
    return gin_record.record(job, saved, settled).options["gin"]


def test_a_run_that_continues_keeps_its_gin_config(caplog, tmp_path):
    """Guards a policy from gin files that change under a run, and from bindings that change what
    its network computes; costs may change, with a word. Edited files of the user's own count."""
    began = recorded(None)
    saved = gin_record.SavedConfig(
        (PPO,), {**began, "GAE.lambda_": "0.5", "Gone.size": "1"}, replayed=False
    )
    del saved.parameters["ContinuousControlAgent.input_clipping"]  # Younger than the run.
    now = recorded(saved, ["ppo.epsilon = 0.125"])
    assert (now["GAE.lambda_"], now["ppo.epsilon"]) == ("0.5", "0.125")
    assert now["ContinuousControlAgent.input_clipping"] == "None"
    assert "Gone.size = 1, which no longer exists" in caplog.text
    assert "gin parameters: ppo.epsilon was 0.2, is now 0.125." in caplog.text
    relu = ["ContinuousControlAgent.activation = @swish"]
    message = "here .* another network: ContinuousControlAgent.activation was @tf.tanh, is now @swi"
    with pytest.raises(UserError, match=message):
        recorded(saved, relu)
    replayed = gin_record.SavedConfig(saved.files, saved.parameters, replayed=True)
    assert recorded(replayed, relu)["ContinuousControlAgent.activation"] == "@swish"

    assert "Settings without effect" not in caplog.text  # Defaults of other networks' parts.

    mine = tmp_path / "mine.gin"
    mine.write_text(f"include '{PPO}'\nGAE.lambda_ = 0.75")
    assert recorded(saved, files=(str(mine),))["GAE.lambda_"] == "0.75"


def test_options_and_bindings_of_the_same_setting(caplog, tmp_path):
    """Guards that a binding wins over an option's default, with a word; that a given option is
    never overridden in silence, also in a run that continues; and that a config from before the
    options means what it did."""
    caplog.set_level(logging.INFO, logger="absl")
    now = recorded(None, ["GAE.lambda_ = 0.5"], entropy_cost=0.25, mlp_sizes=(8,))
    assert (now["GAE.lambda_"], now["ppo.epsilon"]) == ("0.5", "0.2")
    assert now["KLPolicyRegularizer.entropy"] == "0.25"
    assert now["ContinuousControlAgent.num_units_value"] == "8"
    assert "GAE.lambda_ = 0.5 of the gin config replaces --gae_lambda=0.95" in caplog.text
    message = "--gae_lambda=0.75 and the gin config's GAE.lambda_ = 0.5"
    with pytest.raises(UserError, match=message):
        recorded(None, ["GAE.lambda_ = 0.5"], gae_lambda=0.75)
    with pytest.raises(UserError, match="of one size, such as --mlp_sizes=64,64"):
        recorded(None, mlp_sizes=(64, 32))
    saved = gin_record.SavedConfig((PPO,), now, replayed=False)
    again = recorded(saved, gae_lambda=0.75)
    assert (again["GAE.lambda_"], again["KLPolicyRegularizer.entropy"]) == ("0.75", "0.25")

    (tmp_path / "old.gin").write_text("OptimizerConfig.clip_norm = 7.0")
    config = OnPolicyConfig(gin_config=(str(tmp_path / "old.gin"),))
    options = {**gin_options.of_preset(MUJOCO), "adam_beta1": 0.5}
    gin_record.load(config, None, options, {"adam_beta1"})
    created = gin_config.optimizer_config()
    assert (created.learning_rate, created.clip_norm, created.adam_beta1) == (5e-4, 7.0, 0.5)


NORMALIZER = "ContinuousControlAgent.observation_normalizer"
TRACKER = "InputNormalization.mean_std_tracker"


def test_normalized_observations_and_bindings_of_the_same(caplog):
    """Guards that a config's own normalizer stays as it is, its clipping and statistics included;
    that a config without one wins over the default, with a word; and that what is given is never
    overridden in silence. MUJOCO normalizes."""
    caplog.set_level(logging.INFO, logger="absl")
    now = recorded(None)
    assert now[NORMALIZER] == "@InputNormalization()"
    assert now[TRACKER] == "@observations/AverageMeanStd()"
    assert now["ContinuousControlAgent.input_clipping"] == "10.0"
    assert recorded(None, normalize_observations=False)[NORMALIZER] == "None"

    own = [f"{NORMALIZER} = @InputNormalization()", f"{TRACKER} = @FixedMeanStd()"]
    now = recorded(None, own, normalize_observations=True)
    assert (now[TRACKER], now["ContinuousControlAgent.input_clipping"]) == (
        "@FixedMeanStd()",
        "None",
    )
    assert "replaces --normalize_observations" not in caplog.text
    now = recorded(None, [own[1]], normalize_observations=True)
    assert (now[TRACKER], now["ContinuousControlAgent.input_clipping"]) == (
        "@FixedMeanStd()",
        "10.0",
    )
    with pytest.raises(UserError, match=f"--normalize_observations=false and .*{NORMALIZER}"):
        recorded(None, own, normalize_observations=False)
    now = recorded(None, [f"{NORMALIZER} = None"])
    assert now["ContinuousControlAgent.input_clipping"] == "None"
    assert f"{NORMALIZER} = None of the gin config replaces --normalize_obs" in caplog.text
    saved = gin_record.SavedConfig((PPO,), now, replayed=False)
    with pytest.raises(UserError, match=f"another network: .*{NORMALIZER} was None, is now @Inp"):
        recorded(saved, normalize_observations=True)


def test_parts_of_observations_beside_images_are_normalized():
    """Guards the other network, whose statistics change when it is trained; images are left alone,
    and frames still stacked."""
    space = spaces.Dict(
        image=spaces.Box(0, 255, (36, 36, 1), np.uint8), x=spaces.Box(-np.inf, np.inf, (3,))
    )
    gin_config.load(["seed_rl/atari/gin/ppo.gin"])
    gin_options.settle(gin_options.of_preset({"normalize_observations": True, "stack_size": 2}))
    network = program.create_agent(None, space, categorical_distribution(3, tf.int32))
    x = np.random.default_rng(0).normal(5, 3, (4, 2, 3)).astype(np.float32)
    none, no = tf.zeros((4, 2)), tf.zeros((4, 2), tf.bool)
    image = np.random.default_rng(1).integers(0, 256, (4, 2, 36, 36, 1), np.uint8)
    seen = {"image": tf.constant(image), "x": tf.constant(x)}
    outputs = EnvOutput(none, no, seen, no, none)
    state = network.initial_state(2)
    network(none, outputs, state, unroll=True, is_training=True)
    network.end_of_training_step_callback()
    np.testing.assert_allclose(network._normalizer.mean, x.mean((0, 1)), rtol=1e-4)
    np.testing.assert_allclose(network._normalizer.std, x.std((0, 1)), rtol=1e-4)
    ahead = network(none, *network.stacked(outputs, state), unroll=True)[0].policy_logits
    whole = network(none, outputs, state, unroll=True)[0].policy_logits
    np.testing.assert_allclose(ahead, whole, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("binding", "message"),
    [
        ("GEA.lambda_ = 0.9", "'GEA'.*Did you mean GAE?"),
        ("GAE.lambda = 0.9", "'lambda'.*Did you mean GAE.lambda_?"),
        ("OptimizerConfig.learningrate = 1", "Did you mean OptimizerConfig.learning_rate?"),
        ("continuous_action_config.postprocessor = 1", "continuous_action_config.action_postproc"),
        ("GeneralizedOnPolicyLoss.policy_loss = @ppoo()", "'@ppoo.*Did you mean ppo?"),
        ("include 'seed_rl/mujoco/gin/bose.gin'", "bose.gin"),
        ("import no_such_module", "No module named 'no_such_module'"),
        ("GAE.lambda_ = ", "GAE.lambda_"),
        ("GAE.lambda_", "GAE.lambda_"),
        ("ConvNetworkConfig.lstm_sizes = (1,", "is a bracket not closed?"),
        ("ppo.epsilon = abc", "abc is neither a number.*: ppo.epsilon = abc"),
    ],
)
def test_a_wrong_binding_is_refused_with_the_nearest_right_one(binding, message):
    with pytest.raises(UserError, match=f"^Gin config: .*{message}".replace("?", r"\?")) as error:
        gin_config.load([PPO], [binding])
    assert "\n" not in str(error.value)


def test_a_file_that_does_not_exist():
    with pytest.raises(UserError, match="gin_config=.*/ppp.gin does not.*mujoco/gin/ppo.gin"):
        gin_config.load(["seed_rl/mujoco/gin/ppp.gin"])


BASE = 'include "seed_rl/mujoco/gin/base.gin"'


@pytest.mark.parametrize(
    ("lines", "missing"),
    [
        ([], ["reward_normalizer", "advantage_estimator", "policy_loss", "discount_factor"]),
        ([BASE], ["policy_loss", "advantage_estimator"]),
        (["GeneralizedOnPolicyLoss.policy_loss = @ppo()"], ["epsilon", "ppo"]),
        ([BASE, "GeneralizedOnPolicyLoss.policy_loss = %gin.REQUIRED"], ["policy_loss"]),
    ],
)
def test_what_is_missing_is_named(tmp_path, lines, missing):
    (tmp_path / "mine.gin").write_text("\n".join(lines))
    with pytest.raises(UserError) as error:
        gin_config.load([str(tmp_path / "mine.gin")])
        create()
    assert all(name in str(error.value) for name in missing), error.value
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("binding", "message"),
    [
        ("OptimizerConfig.learning_rate = -1", "OptimizerConfig.learning_rate must be at least 0"),
        ("OptimizerConfig.optimizer = 'adan'", "OptimizerConfig.optimizer must be one of .*adam"),
        ("continuous_action_config.action_postprocessor = 'tan'", "must be one of .*Tanh"),
        ("KLPolicyRegularizer.entrpy = 0.1", "no coefficient entrpy.*entropy"),
    ],
)
def test_a_wrong_value_is_refused(binding, message):
    with_regularizer = "GeneralizedOnPolicyLoss.regularizer = @KLPolicyRegularizer()"
    on_policy_runs.load(PPO, [with_regularizer, binding])
    with pytest.raises(UserError, match=message):
        create()


def test_what_existing_programs_import_and_register(tmp_path):
    """Guards gin's names of TensorFlow, and that a function registered twice is not ambiguous."""
    own = gin.external_configurable(parametric_distribution.continuous_action_config)
    lines = [
        "import gin.tf.external_configurables",
        "continuous_action_config.action_postprocessor = 'ClippedIdentity'",
        "OptimizerConfig.learning_rate = @tf.train.exponential_decay",
        "OptimizerConfig.optimizer = @tf.keras.optimizers.Adam",
    ]
    (tmp_path / "old.gin").write_text("\n".join(lines))
    gin_config.load([str(tmp_path / "old.gin")])
    for create_config in (own, gin_config.continuous_action_config):
        assert create_config().action_postprocessor == "ClippedIdentity"


def test_bindings_without_effect_are_told(caplog):
    on_policy_runs.load(PPO, ["awr.beta = 2.0", "ppo.epsilon = 0.3"])
    create()
    options = gin_options.of_preset({})
    bound = {name: gin_options.parameters(name, options[name]) for name in options}
    bound["--torso"] = bound.pop("torso")
    gin_config.warn_of_unused(bound)
    (record,) = caplog.records
    assert "awr.beta" in record.message and "ppo" not in record.message
    assert "--torso" in record.message and "lstm_sizes" not in record.message


def test_loading_replaces_what_was_loaded():
    """Guards notebooks: nothing of the last config is left."""
    on_policy_runs.load("seed_rl/mujoco/gin/awr.gin", ["awr.beta = 7.0"])
    create()
    on_policy_runs.load(PPO, ["ppo.epsilon = 0.125"])
    create()
    assert gin.query_parameter("ppo.epsilon") == 0.125
    assert "awr" not in gin.operative_config_str()
    with pytest.raises(ValueError, match="'awr' has no bound"):
        gin.query_parameter("awr.beta")


def test_later_files_and_bindings_win(tmp_path, monkeypatch):
    """Files are found in the working directory as well as in the package."""
    folder = tmp_path / "configs"
    folder.mkdir()
    (folder / "mine.gin").write_text(f'include "{PPO}"\nppo.epsilon = 0.5\nGAE.lambda_ = 0.5')
    monkeypatch.chdir(tmp_path)
    gin_config.load(["configs/mine.gin"])
    assert gin.query_parameter("ppo.epsilon") == 0.5
    gin_config.load([PPO, "configs/mine.gin"], ["GAE.lambda_ = 0.25"])
    assert gin.query_parameter("ppo.epsilon") == 0.5
    assert gin.query_parameter("GAE.lambda_") == 0.25
    gin_config.load(["configs/mine.gin", PPO], ["include 'configs/mine.gin'"])
    assert gin.query_parameter("ppo.epsilon") == 0.5


@pytest.mark.parametrize("config", SHIPPED)
def test_the_record_of_a_run_describes_the_same_agent(config, tmp_path):
    """`operative_config.gin` holds defaults too, so that it is self-contained."""
    on_policy_runs.load(config)
    values = [loss_value("atari" in config)]
    record = gin.operative_config_str()
    assert "GeneralizedOnPolicyLoss.huber_delta = None" in record
    (tmp_path / gin_config.OPERATIVE_FILE).write_text(record)
    saved = gin_record.SavedConfig((), gin_record.parsed(record), replayed=False)
    for load in (
        lambda: gin_config.load([str(tmp_path / gin_config.OPERATIVE_FILE)]),
        lambda: gin_record.load(OnPolicyConfig(), saved),
    ):
        load()
        values.append(loss_value("atari" in config))
        assert gin.operative_config_str() == record
    np.testing.assert_allclose(values, values[0], rtol=1e-6)


def loss_value(images):
    """The loss of random unrolls with random weights of a fixed seed, as the config defines it."""
    tf.keras.utils.set_random_seed(3)
    loss = create(images)
    loss.init()
    rng = np.random.default_rng(0)
    shape, batch = (5, 4), 4
    sizes = (84, 84, 1) if images else (3,)
    observations = rng.normal(size=(*shape, *sizes)) * (100 if images else 1)
    env_outputs = EnvOutput(
        rng.normal(size=shape).astype(np.float32),
        rng.random(shape) < 0.2,
        tf.cast(tf.abs(observations), tf.uint8 if images else tf.float32),
        np.zeros(shape, np.bool_),
        np.zeros(shape, np.int32),
    )
    env_outputs = tf.nest.map_structure(tf.convert_to_tensor, env_outputs)
    actions = tf.constant(rng.integers(3, size=shape), tf.int32)
    network = loss._agent
    state = network.initial_state(batch)
    outputs, _ = call_network(network, actions, env_outputs, state, unroll=True)
    return float(loss(state, actions, env_outputs, outputs))


def test_multipliers_are_found():
    """V-MPO's temperature and constraint are clipped apart."""
    on_policy_runs.load("seed_rl/mujoco/gin/vmpo.gin")
    loss = create()
    loss.init()
    parts = [p for p in loss.submodules if isinstance(p, LagrangeInequalityCoefficient)]
    assert len(parts) == len(loss.multipliers()) == 2
    assert all(a is not b for a, b in itertools.combinations(loss.multipliers(), 2))
