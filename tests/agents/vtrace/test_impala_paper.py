"""`impala_paper.flags`: the settings of the paper, and updates as its summed losses make them."""

import json

import numpy as np
import tensorflow as tf
from scipy.special import log_softmax

from seed_rl.agents.vtrace.algorithm import VTrace
from seed_rl.agents.vtrace.config import VTraceConfig
from seed_rl.agents.vtrace.networks import AgentOutput
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.config.options import from_values
from seed_rl.common.learner.optimizer import create_optimizer
from seed_rl.common.learner.training import TrainingStep
from seed_rl.common.parametric_distribution import categorical_distribution
from seed_rl.common.types import EnvOutput, Unroll
from tests.helpers import PROGRAMS, REPOSITORY, run_python
from tests.helpers.contexts import context
from tests.helpers.network_inputs import TableAgent

FLAGS = REPOSITORY / "seed_rl" / "atari" / "impala_paper.flags"

TIME, BATCH, ACTIONS = 20, 32, 4
# Espeholt et al. 2018, table G.1, and eq. (8) of Mnih et al. 2016 for RMSProp, whose decay is 0.99.
LEARNING_RATE, EPSILON, CLIP, DECAY = 6e-4, 0.01, 40.0, 0.99
DISCOUNT, BASELINE_COST, ENTROPY_COST = 0.99, 0.5, 0.01


def test_the_file_has_the_settings_of_the_paper():
    """Guards them as the program reads them, one by one."""
    program = PROGRAMS / "effective_options.py"
    result = run_python(program, "seed_rl.atari.vtrace_main", f"--flagfile={FLAGS}", code=0)
    read = json.loads(result.stdout)[0]
    expected = {
        # Table G.1.
        "num_action_repeats": 4,
        "stack_size": 4,
        "max_abs_reward": 1.0,
        "unroll_length": TIME,
        "batch_size": BATCH,
        "discounting": DISCOUNT,
        "baseline_cost": BASELINE_COST,
        "entropy_cost": ENTROPY_COST,
        "optimizer": "rmsprop",
        "rmsprop_momentum": 0.0,
        "learning_rate": LEARNING_RATE,
        "learning_rate_decay": True,
        "optimizer_epsilon": EPSILON / (TIME * BATCH) ** 2,
        "clip_norm": CLIP / (TIME * BATCH),
        # The text: feed-forward network, rho-bar = c-bar = 1, no auxiliary losses.
        "torso": "impala_deep",
        "lstm_sizes": [0],
        "max_importance_weight": 1.0,
        "lambda_": 1.0,
        "target_entropy": None,
        "kl_cost": 0.0,
        "action_persistence": 1.0,
        "reward_scaling": 1.0,
        "max_random_noops": 30,
        "rmsprop_decay": DECAY,
        "episodic_life": True,
        "full_action_space": False,
        "sticky_actions": False,
        "total_environment_frames": 200_000_000,
    }
    assert {name: read[name] for name in expected} == expected


def summed_gradients(logits, values, env_outputs, behaviour):
    """Of the paper's three losses (section 4.2), summed over time and batch, in NumPy."""
    log_pi, log_mu = (log_softmax(x[:-1], -1) for x in (logits, behaviour.policy_logits))
    chosen = np.eye(ACTIONS)[behaviour.action[:-1]]
    rho = np.minimum(1.0, np.exp(((log_pi - log_mu) * chosen).sum(-1)))
    reward = np.clip(env_outputs.reward[1:], -1, 1)
    discount = DISCOUNT * (1.0 - env_outputs.done[1:])
    target = np.copy(values)  # v_s
    for t in reversed(range(TIME)):
        delta = rho[t] * (reward[t] + discount[t] * values[t + 1] - values[t])
        target[t] = values[t] + delta + discount[t] * rho[t] * (target[t + 1] - values[t + 1])
    advantage = rho * (reward + discount * target[1:] - values[:-1])
    pi = np.exp(log_pi)
    entropy = -(pi * log_pi).sum(-1, keepdims=True)
    of_logits, of_values = np.zeros_like(logits), np.zeros_like(values)
    of_logits[:-1] = advantage[..., None] * (pi - chosen)
    of_logits[:-1] += ENTROPY_COST * pi * (log_pi + entropy)
    of_values[:-1] = BASELINE_COST * (values - target)[:-1]
    return of_logits, of_values


def random_batches(rng, count):
    shape = (count, TIME + 1, BATCH)
    reward = (3 * rng.normal(size=shape)).astype(np.float32)
    done, false = rng.random(shape) < 0.1, np.zeros(shape, np.bool_)
    env_outputs = EnvOutput(reward, done, false, false, np.zeros(shape, np.int32))
    behaviour = AgentOutput(
        rng.integers(0, ACTIONS, shape).astype(np.int32),
        rng.normal(size=(*shape, ACTIONS)).astype(np.float32),
        np.zeros(shape, np.float32),
    )
    return env_outputs, behaviour


def test_updates_are_those_of_the_papers_summed_losses():
    """Guards epsilon and clipping of the file, which ours divides as its losses are means."""
    rng = np.random.default_rng(0)
    count = 6
    logits = rng.normal(size=(TIME + 1, BATCH, ACTIONS)).astype(np.float32)
    # Large values make gradients whose norm is clipped at first.
    values = (4 * rng.normal(size=(TIME + 1, BATCH))).astype(np.float32)
    batches = random_batches(rng, count)

    lines = [line.removeprefix("--").partition("=") for line in FLAGS.read_text().splitlines()]
    given = {name: value for name, _, value in lines if not name.startswith("#")}
    numbers = {name: float(value) for name, value in given.items() if value[:1].isdigit()}
    config = from_values(VTraceConfig, numbers)
    options = from_values(OptimizerConfig, {**numbers, "optimizer": given["optimizer"]})
    optimizer, _ = create_optimizer(count, options)
    distribution = categorical_distribution(ACTIONS, tf.int32)
    ours = VTrace(config, context(lambda: TableAgent(logits, values), distribution))
    step = TrainingStep(ours, optimizer, tf.distribute.get_strategy(), options.clip_norm)
    unrolls = Unroll((), batches[1].action, *batches)
    iterator = iter(tf.data.Dataset.from_tensor_slices(unrolls))

    weights = [logits.astype(np.float64), values.astype(np.float64)]
    squares = [np.zeros_like(weight) for weight in weights]
    norms = []
    for i in range(count):
        step.run(iterator)
        gradients = summed_gradients(
            *weights, *(type(part)(*(leaf[i] for leaf in part)) for part in batches)
        )
        norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients))
        norms.append(norm)
        for weight, square, gradient in zip(weights, squares, gradients, strict=True):
            gradient = gradient * min(1.0, CLIP / norm)
            square *= DECAY
            square += (1 - DECAY) * gradient**2
            rate = LEARNING_RATE * (1 - i / count)
            weight -= rate * gradient / np.sqrt(square + EPSILON)
        trained = ours.network.policy_logits, ours.network.baseline
        for actual, expected, start in zip(trained, weights, (logits, values), strict=True):
            moved = np.abs(expected - start).max()
            assert moved > 1e-3
            np.testing.assert_allclose(actual.numpy(), expected, rtol=0, atol=2e-3 * moved)
    assert max(norms) > CLIP  # Or the clipping was not tested.
