"""Loss, LSTM and sampling together learn what needs all of them."""

import tensorflow as tf

from seed_rl.agents.vtrace import losses, networks
from seed_rl.agents.vtrace.config import VTraceConfig
from seed_rl.common.parametric_distribution import categorical_distribution
from seed_rl.common.types import EnvOutput

NUM_CUES, NUM_STEPS, BATCH = 3, 8, 32


def test_an_lstm_learns_to_name_a_cue_that_is_gone():
    """Episodes of two steps: a cue is shown; then, unseen, it is to be named for a reward of 1.

    Chance gives 1/3. A wrong sign, a reward or reset that is off by one step, or gradients that do
    not reach back to the cue all fail here.
    """
    tf.keras.utils.set_random_seed(0)  # Also of the initial weights.
    distribution = categorical_distribution(NUM_CUES, tf.int32)
    agent = networks.MLPandLSTM(distribution, [], [16])
    config = VTraceConfig(entropy_cost=0.01)
    entropy_cost = losses.create_entropy_cost(config)
    optimizer = tf.keras.optimizers.Adam(0.02)

    def play():
        cues = tf.random.uniform([NUM_STEPS + 1, BATCH], maxval=NUM_CUES, dtype=tf.int32)
        action, state = tf.zeros([BATCH], tf.int32), agent.initial_state(BATCH)
        steps = []
        for t in range(NUM_STEPS + 1):
            shows_cue = t % 2 == 0
            rewarded = shows_cue and t > 0
            env_output = EnvOutput(
                tf.cast(action == cues[t - 2], tf.float32) if rewarded else tf.zeros([BATCH]),
                tf.fill([BATCH], shows_cue),
                tf.one_hot(cues[t], NUM_CUES) * float(shows_cue),
                tf.zeros([BATCH], tf.bool),
                tf.fill([BATCH], t % 2),
            )
            output, state = agent(action, env_output, state)
            steps.append((action, env_output, output))
            action = output.action
        return tf.nest.map_structure(lambda *xs: tf.stack(xs), *steps)

    play()
    optimizer.build(agent.trainable_variables)

    @tf.function(autograph=False)
    def train():
        prev_actions, env_outputs, behaviour = play()
        with tf.GradientTape() as tape:
            loss, _ = losses.compute_loss(
                config,
                distribution,
                agent,
                agent.initial_state(BATCH),
                prev_actions,
                env_outputs,
                behaviour,
                entropy_cost,
            )
        variables = agent.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)
        return tf.reduce_sum(env_outputs.reward) / (BATCH * NUM_STEPS // 2)

    hits = [float(train()) for _ in range(200)]
    assert sum(hits[:5]) / 5 < 0.5, "it must not be known beforehand"
    assert sum(hits[-10:]) / 10 > 0.9
